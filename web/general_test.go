package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAHouseIsRenamedOnItsPage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.recipes = append(f.recipes, &arbev1.Environment{Id: "env2", HouseId: "home", Name: "small"})
	b := newTab(t, f.start(t))
	b.open("/houses/home/settings")
	b.until("its name and its environments", "document.querySelector('#f-name').value === 'Home' && document.querySelector('#f-default_environment_id').value === 'env1'")
	b.accessibleEverywhere("the settings of a house")
	b.pictures("general")
	b.do(chromedp.SetValue(chromedp.CSS("#f-name"), "Castle"), chromedp.SetValue(chromedp.CSS("#f-default_environment_id"), "env2"),
		chromedp.Click(chromedp.CSS("form[action$='/settings'] button")))
	b.until("the new name", "document.querySelector('.saved') && document.querySelector('h1').innerText === 'Settings of Castle' && document.querySelector('#f-default_environment_id').value === 'env2'")
}

func TestAHouseIsDeletedOnlyWithItsName(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := ada(t, f)
	res, page := c.post("/houses/home/delete", url.Values{"confirm": {"home"}})
	want(t, res, http.StatusBadRequest, "")
	contains(t, page, `<span class="wrong">This is not the name of the house`, `name="confirm" value="home"`, `name="name" value="Home"`)
	if f.deleted {
		t.Error("it is deleted")
	}
	res, _ = c.post("/houses/home/delete", url.Values{"confirm": {" Home "}})
	want(t, res, http.StatusSeeOther, "/")
	if !f.deleted {
		t.Error("it is not deleted")
	}
	f.house.Role = "member"
	_, page = c.get("/houses/home/settings")
	contains(t, page, "An owner of the house can change these.", "readonly")
	lacks(t, page, "Delete this house")
}

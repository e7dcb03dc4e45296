package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
)

// maxStarted limits how many houses the cookie of checklists remembers.
const maxStarted = 40

// checklistOf returns what a new house still lacks, for its owners. It returns nil when nothing is missing, when the reader
// dismissed the list, or when the state of a step cannot be read: the page works without the list.
func (a *app) checklistOf(w http.ResponseWriter, r *http.Request, f layout) *checklist {
	if !f.isOwner() || f.Page != "" || f.Only != "" || slices.Contains(a.startedHouses(r), f.House.Id) {
		return nil
	}
	var (
		models  *arbev1.ListModelsResponse
		recipes *arbev1.ListEnvironmentsResponse
		members *arbev1.ListMembersResponse
		invites *arbev1.ListInvitesResponse
		boxes   *arbev1.ListSandboxesResponse
		secrets *arbev1.ListSecretsResponse
	)
	g, ctx := guard.NewGroup(r.Context())
	g.Go(func() (err error) {
		models, err = a.services.models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: f.House.Id})
		return err
	})
	g.Go(func() (err error) {
		recipes, err = a.services.environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: f.House.Id, PageSize: 200})
		return err
	})
	g.Go(func() (err error) {
		members, err = a.services.houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: f.House.Id, PageSize: 200})
		return err
	})
	g.Go(func() (err error) {
		invites, err = a.services.houses.ListInvites(ctx, &arbev1.ListInvitesRequest{HouseId: f.House.Id, PageSize: 1})
		return err
	})
	g.Go(func() (err error) {
		boxes, err = a.services.sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: f.House.Id})
		return err
	})
	g.Go(func() (err error) {
		secrets, err = a.services.secrets.ListSecrets(ctx, &arbev1.ListSecretsRequest{HouseId: f.House.Id})
		return err
	})
	if err := g.Wait(); err != nil {
		a.log.WarnContext(r.Context(), "web: the checklist of a house is not shown", "error", err)
		return nil
	}
	list := newChecklist(f.House, models, recipes, members, invites)
	list.addSandbox(f.House, boxes.Sandboxes)
	list.addMissingSecret(f.House, recipes.Environments, secrets.Secrets)
	if list.done() { // so that the page does not ask for all of this again
		a.rememberStarted(w, r, f.House.Id)
		return nil
	}
	return list
}

// dismissChecklist hides the checklist of a house in this browser.
func (a *app) dismissChecklist(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	a.rememberStarted(w, r, house)
	http.Redirect(w, r, housePath(house), http.StatusSeeOther)
	return nil
}

// startedHouses returns the houses whose checklist this browser does not show any more.
func (a *app) startedHouses(r *http.Request) []string {
	c, err := r.Cookie(a.cookieName(startedCookie))
	if err != nil {
		return nil
	}
	return strings.Split(c.Value, ".")
}

func (a *app) rememberStarted(w http.ResponseWriter, r *http.Request, house string) {
	houses := slices.DeleteFunc(a.startedHouses(r), func(id string) bool { return id == house })
	houses = append([]string{house}, houses...)
	houses = houses[:min(len(houses), maxStarted)]
	http.SetCookie(w, a.cookie(startedCookie, strings.Join(houses, "."), time.Now().AddDate(1, 0, 0)))
}

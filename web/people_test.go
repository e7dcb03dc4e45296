package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// former returns the id of a former member of a fake's house.
func former(n int) string { return fmt.Sprintf("7f6f0a52-0000-4000-8000-0000000002%02d", n) }

// left returns a fake whose house has a primary thread that says that Bob left, and a thread in which he and others speak.
func left() *fake {
	f := newFake()
	f.thread("primary01", "Home")
	f.house.PrimaryThreadId = "primary01"
	f.says("primary01", f.me.Id, "", entry.MemberRemoved{AgentID: former(1), Name: "Bob", By: "Ada"})
	f.thread("former001", "Former")
	f.says("former001", former(1), "", entry.Chat{Text: "from Bob."})
	f.says("former001", former(2), "", entry.Chat{Text: "from somebody else."})
	f.says("former001", former(2), "c1", entry.Command{Command: "make"})
	f.says("former001", "", entry.ResultID("c1"), entry.CommandResult{CommandID: "c1", Cancelled: true, CancelledBy: former(1), DurationMS: 1000})
	f.threads["former001"].LastSaid = &arbev1.LastSaid{AuthorAgentId: former(1), Text: "said last."}
	return f
}

func TestFormerMembersKeepTheirNames(t *testing.T) {
	t.Parallel()
	f := left()
	f.append("former001", "no id", "", "chat", `{"text":"from nobody."}`)
	c := ada(t, f)
	_, page := c.get("/threads/former001")
	contains(t, page, `title="Bob left this house">Bob<`, `title="former member left this house">former member<`, "stopped by Bob", "<b>unknown</b>")
	lacks(t, page, "unknown left")
	_, page = c.get("/houses/home")
	contains(t, page, "<b>Bob</b> said last.")

	t.Run("without reading the house's log again", func(t *testing.T) {
		reads := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.called["List"]
		}
		before := reads()
		for range 3 {
			_, page := c.in(t).get("/threads/former001")
			contains(t, page, "Bob left this house")
			_, page = c.in(t).get("/houses/home")
			contains(t, page, "<b>Bob</b> said last.")
		}
		if n := reads() - before; n != 3 {
			t.Errorf("three pages of a thread take %d reads of logs", n)
		}
	})
	t.Run("and so does one who leaves now", func(t *testing.T) {
		f.says("primary01", f.me.Id, "", entry.MemberRemoved{AgentID: former(3), Name: "Grace"})
		f.says("former001", former(3), "", entry.Chat{Text: "from Grace."})
		_, page := c.in(t).get("/threads/former001")
		contains(t, page, "Grace left this house")
	})
	t.Run("also when the house's thread was deleted", func(t *testing.T) {
		f := left()
		f.house.PrimaryThreadId = "deleted01"
		_, page := ada(t, f).get("/houses/home")
		contains(t, page, "<b>former member</b> said last.")
	})
}

// A member whose name cannot be read is not shown as a former member.
func TestANameThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path string }{
		{"GetAgent", "/threads/former001"}, {"GetHouse", "/threads/former001"}, {"List", "/houses/home"}, {"GetHouse", "/houses/home"},
	} {
		t.Run(c.method+" of "+c.path, func(t *testing.T) {
			t.Parallel()
			f := left()
			f.fails(c.method, refused(connect.CodeUnavailable, "the database cannot be reached", "try again in a moment"))
			client := ada(t, f)
			res, page := client.get(c.path)
			want(t, res, http.StatusServiceUnavailable, "")
			lacks(t, page, "former member")
			f.fails(c.method, nil)
			res, page = client.get(c.path)
			want(t, res, http.StatusOK, "")
			contains(t, page, "Bob")
		})
	}
}

package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// react adds the reader's reaction to an entry, or removes it if it is there.
func (a *app) react(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	e, err := a.wireEntryAt(r)
	if err != nil {
		return err
	}
	me, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{})
	if err != nil {
		return err
	}
	emoji := cmp.Or(r.PostFormValue("emoji"), strings.TrimSpace(r.PostFormValue("other")))
	if stored, ok := entry.Emoji(emoji); ok {
		emoji = stored
	}
	has := slices.ContainsFunc(e.State.GetReactions(), func(one *arbev1.Reaction) bool {
		return one.Emoji == emoji && slices.Contains(one.AgentIds, me.GetAgent().GetId())
	})
	_, err = a.services.entries.React(r.Context(), &arbev1.ReactRequest{ThreadId: r.PathValue("thread"), EntryId: e.Id, Emoji: clip(emoji, entry.MaxEmoji), Remove: has})
	return a.doneInThread(w, r, err)
}

package web

import (
	"context"
	"net/http"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// mineWhole renders the reader's inbox. The inbox is the only part of the sidebar and lists that differs between readers. So
// it has its own topic, and the script overlays it on the rows.
func mineWhole(ctx context.Context, house string, i *arbev1.Inbox) (*mine, error) {
	m := &mine{rows: &listing{id: "needs", digest: inboxDigest(i)}}
	if len(i.GetNeeds()) > 0 {
		m.rows.shape = "some"
	}
	s := section{within: "needs-rows", rows: map[string]string{}}
	for _, n := range i.GetNeeds() {
		text, err := rendered(ctx, needItem(n))
		if err != nil {
			return nil, err
		}
		id := "need-" + n.ThreadId
		s.ids, s.rows[id] = append(s.ids, id), string(text)
	}
	m.rows.sections = []section{s}
	whole, err := rendered(ctx, needsList(i))
	if err != nil {
		return nil, err
	}
	m.rows.html = string(whole)
	head, err := rendered(ctx, mineHead(house, i))
	if err != nil {
		return nil, err
	}
	direct, err := rendered(ctx, directList(i))
	m.head, m.direct = string(head), string(direct)
	return m, err
}

// mine is the view of a reader's inbox: the list of threads that need them, the element with the numbers, and their direct
// messages.
type mine struct {
	rows         *listing
	head, direct string
}

func (m *mine) cursor() string { return m.rows.digest }

func (m *mine) whole() []patch {
	return append(m.rows.whole(), patch{Selector: "#mine", HTML: m.head}, patch{Selector: "#direct", HTML: m.direct})
}

func (m *mine) since(before view) []patch {
	old, ok := before.(*mine)
	if !ok {
		return m.whole()
	}
	patches := m.rows.since(old.rows)
	if m.head != old.head {
		patches = append(patches, patch{Selector: "#mine", HTML: m.head})
	}
	if m.direct != old.direct {
		patches = append(patches, patch{Selector: "#direct", HTML: m.direct})
	}
	return patches
}

// markRead records how far the reader has seen a thread. The script calls it.
func (a *app) markRead(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	seq, err := strconv.ParseInt(r.PostFormValue("seq"), 10, 64)
	if err != nil || seq < 1 {
		return fault.New(fault.Invalid, "seq: it is not a position", "give the position of an entry")
	}
	if _, err := a.services.inboxes.MarkRead(r.Context(), &arbev1.MarkReadRequest{ThreadId: r.PathValue("thread"), Seq: seq}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// muteThread mutes or unmutes a thread for the reader.
func (a *app) muteThread(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	thread := r.PathValue("thread")
	if _, err := a.services.inboxes.MuteThread(r.Context(), &arbev1.MuteThreadRequest{ThreadId: thread, Muted: r.PostFormValue("muted") == "true"}); err != nil {
		return err
	}
	http.Redirect(w, r, threadPath(thread), http.StatusSeeOther)
	return nil
}

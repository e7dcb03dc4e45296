package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// mineWhole renders the reader's inbox. The inbox is the only part of the sidebar and lists that differs between readers. So
// it has its own topic, and the script overlays it on the rows.
func mineWhole(ctx context.Context, house string, i *arbev1.Inbox) (*mine, error) {
	m := &mine{rows: &listing{id: "needs", digest: inboxDigest(i)}}
	if len(i.GetNeeds()) > 0 {
		m.rows.shape = "some"
		if hasUnread(i) {
			m.rows.shape = "some unread"
		}
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
	whole, err := rendered(ctx, needsList(house, i))
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

// tendInbox marks threads of the inbox as read: one of them, or all that the page listed. It also mutes one that was marked with
// the button for that.
func (a *app) tendInbox(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, read := r.PathValue("house"), r.PostForm["read"]
	if mute := r.PostFormValue("mute"); mute != "" {
		thread, _, _ := strings.Cut(mute, ":")
		if _, err := a.services.inboxes.MuteThread(r.Context(), &arbev1.MuteThreadRequest{ThreadId: thread, Muted: true}); err != nil {
			return err
		}
		read = []string{mute}
	}
	if r.PostFormValue("all") != "" {
		read = r.PostForm["listed"]
	}
	for _, mark := range read[:min(len(read), maxMarked)] {
		if err := a.markNeed(r.Context(), mark); err != nil {
			return err
		}
	}
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	http.Redirect(w, r, housePath(house)+"#needs", http.StatusSeeOther)
	return nil
}

// maxMarked limits the threads that one form marks as read, to those that an inbox lists.
const maxMarked = 100

// markNeed marks a thread as read, with the value of [needMark]. A thread that was deleted meanwhile is not an error.
func (a *app) markNeed(ctx context.Context, mark string) error {
	thread, upto, _ := strings.Cut(mark, ":")
	seq, err := strconv.ParseInt(upto, 10, 64)
	if err != nil || seq < 0 {
		return fault.New(fault.Invalid, "read: it is not a thread and a position", "reload the page")
	}
	if seq == 0 {
		return nil // nothing was said in it
	}
	if _, err = a.services.inboxes.MarkRead(ctx, &arbev1.MarkReadRequest{ThreadId: thread, Seq: seq}); err != nil && faultOf(err).Code != fault.NotFound {
		return err
	}
	return nil
}

// markUnread marks an entry and all later ones as unread for the reader.
func (a *app) markUnread(w http.ResponseWriter, r *http.Request) error {
	seq, err := position(url.Values{"seq": {r.PathValue("seq")}}, "seq")
	if err != nil {
		return err
	}
	if _, err := a.services.inboxes.MarkRead(r.Context(), &arbev1.MarkReadRequest{ThreadId: r.PathValue("thread"), Seq: seq, Unread: true}); err != nil {
		return err
	}
	return a.doneInThread(w, r, nil)
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

package web

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// newID makes an id for something a page may send. It is made with the form, so that sending the form
// twice does the thing once.
func newID() string { return strings.ToLower(rand.Text()) }

var isID = regexp.MustCompile(`^[a-z0-9]{8,64}$`).MatchString

// utterance is one thing said with a form.
type utterance struct{ Thread, ID, Text string }

// sending is what became of something in the outbox: refused with a failure, or taken at a position; the
// zero sending is still on its way.
type sending struct {
	Seq     int64
	Failure *fault.Error
}

// say writes what somebody wrote in the composer into the thread, or runs it if it is a command. A plain
// form goes on to the entry; the page's script is told what became of it.
func (a *app) say(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	u := utterance{Thread: r.PathValue("thread"), ID: r.PostFormValue("entry"), Text: r.PostFormValue("text")}
	seq, err := a.utter(r.Context(), u)
	switch {
	case fromScript(r) && isID(u.ID) && err != nil:
		return a.show(w, r, http.StatusOK, outboxItem(u, sending{Failure: faultOf(err)}))
	case fromScript(r) && isID(u.ID):
		return a.show(w, r, http.StatusOK, outboxItem(u, sending{Seq: seq}))
	case err != nil:
		return &unsent{error: err, Action: r.URL.Path, Fields: map[string]string{"entry": u.ID}, Text: u.Text}
	}
	http.Redirect(w, r, threadPath(u.Thread)+"#e"+strconv.FormatInt(seq, 10), http.StatusSeeOther)
	return nil
}

// utter appends an utterance and returns its position. The same id again is the same entry.
func (a *app) utter(ctx context.Context, u utterance) (seq int64, err error) {
	u.Text = strings.ReplaceAll(u.Text, "\r\n", "\n") // as forms write a line's end
	switch {
	case !isID(u.ID):
		return 0, fault.New(fault.Invalid, "the form's id is not one of ours", "open the thread again and send the text from there")
	case !utf8.ValidString(u.Text):
		return 0, fault.New(fault.Invalid, "the text is not valid UTF-8", "send it as UTF-8")
	}
	if line, ok := entry.ParseCommand(u.Text); ok {
		if line == "" {
			return 0, fault.New(fault.Invalid, "there is nothing to run", "write a command behind it, such as !ls -l")
		}
		res, err := a.services.threads.RunCommand(ctx, &arbev1.RunCommandRequest{
			ThreadId: u.Thread, Id: u.ID, What: &arbev1.RunCommandRequest_Command{Command: line},
		})
		return res.GetEntry().GetSeq(), err
	}
	c := entry.Chat{Text: u.Text}
	if err := c.Validate(); err != nil {
		return 0, err
	}
	res, err := a.services.entries.Append(ctx, &arbev1.AppendRequest{
		ThreadId: u.Thread, Id: u.ID, Type: c.Type(), Payload: string(entry.NewDraft(u.ID, "", c).Payload),
	})
	return res.GetEntry().GetSeq(), err
}

// cancelCommand stops a command.
func (a *app) cancelCommand(w http.ResponseWriter, r *http.Request) error {
	thread := r.PathValue("thread")
	_, err := a.services.threads.CancelCommand(r.Context(), &arbev1.CancelCommandRequest{ThreadId: thread, CommandId: r.PathValue("command")})
	if err != nil {
		return err
	}
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent) // the tail tells how it ended
		return nil
	}
	http.Redirect(w, r, threadPath(thread), http.StatusSeeOther)
	return nil
}

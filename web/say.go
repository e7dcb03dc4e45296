package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"google.golang.org/protobuf/types/known/durationpb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// filesOf returns the files of a form. Each field has an artifact's id, a space, and a name for people.
func filesOf(r *http.Request) (files []outgoingFile) {
	for _, field := range r.PostForm["file"] {
		id, name, _ := strings.Cut(field, " ")
		files = append(files, outgoingFile{id, name})
	}
	return files
}

// say posts the composer's message, a chat or a command. It redirects a plain form to the entry, and answers the script with
// the message's item in the outbox.
func (a *app) say(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	u := outgoingMessage{Thread: r.PathValue("thread"), ID: r.PostFormValue("entry"), Text: textOf(r), Reply: r.PostFormValue("reply"), Files: filesOf(r), Queue: r.PostForm.Get("queue") == "true"}
	seq, err := a.post(r.Context(), u)
	scripted := fromScript(r) && isID(u.ID)
	switch {
	case err != nil && scripted && !passing(err):
		return a.show(w, r, http.StatusOK, outboxItem(u, sending{Failure: faultOf(err)}))
	case err != nil:
		return &unsent{error: err, Action: r.URL.Path, Fields: map[string]string{"entry": u.ID, "reply": u.Reply, "queue": r.PostForm.Get("queue")}, Text: u.Text}
	case scripted:
		return a.show(w, r, http.StatusOK, outboxItem(u, sending{Seq: seq}))
	}
	http.Redirect(w, r, threadPath(u.Thread)+"#e"+strconv.FormatInt(seq, 10), http.StatusSeeOther)
	return nil
}

// post posts a message and returns its position. The same id returns the same entry.
func (a *app) post(ctx context.Context, u outgoingMessage) (seq int64, err error) {
	if err := checkMessage(u); err != nil {
		return 0, err
	}
	req := &arbev1.SayRequest{ThreadId: u.Thread, Id: u.ID, Text: u.Text, ReplyTo: u.Reply, Queue: u.Queue}
	for _, f := range u.Files {
		req.AttachmentIds = append(req.AttachmentIds, f.Artifact)
	}
	res, err := a.services.entries.Say(ctx, req)
	return res.GetEntry().GetSeq(), err
}

// checkMessage returns the errors of a message form that can be found without the services.
func checkMessage(u outgoingMessage) error {
	switch {
	case !isID(u.ID):
		return fault.New(fault.Invalid, "the form's id is not valid", "open the page again and send the text from there")
	case len(u.Text) > entry.MaxText:
		return tooLarge(entry.MaxText)
	case len(u.Files) > entry.MaxAttachments:
		return fault.Newf(fault.Invalid, "send the others with another message", "a message may have %d files", entry.MaxAttachments)
	case !utf8.ValidString(u.Text):
		return fault.New(fault.Invalid, "the text is not valid UTF-8", "send it as UTF-8")
	}
	return nil
}

// runAgain runs the command of an entry once more, in the same directory with the same variables. It has the form's id, so that
// sending the form twice runs the command once.
func (a *app) runAgain(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	id := r.PostFormValue("entry")
	if !isID(id) {
		return fault.New(fault.Invalid, "the form's id is not valid", "open the thread again and run the command from there")
	}
	e, err := a.entryAt(r)
	if err != nil {
		return err
	}
	c, ok := entry.As[entry.Command](e)
	if !ok {
		return fault.Newf(fault.Invalid, "open the thread and choose a command", "entry %d is not a command", e.Seq)
	}
	if c.Changes != "" { // only the services can put changes into a sandbox
		return fault.New(fault.Precondition, "this command uses the changes of a coding agent, and cannot be run again from here", "open the changes, and apply them or open a branch there")
	}
	req := &arbev1.RunCommandRequest{ThreadId: r.PathValue("thread"), Id: id, EnvironmentId: c.EnvironmentID, Directory: c.Directory, Env: c.Env}
	if req.What = (&arbev1.RunCommandRequest_Command{Command: c.Command}); len(c.Argv) > 0 {
		req.What = &arbev1.RunCommandRequest_Argv{Argv: &arbev1.Argv{Args: c.Argv}}
	}
	if c.TimeoutMS > 0 {
		req.Timeout = durationpb.New(time.Duration(c.TimeoutMS) * time.Millisecond)
	}
	res, err := a.services.threads.RunCommand(r.Context(), req)
	if err != nil {
		return err
	}
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent) // the new entry arrives with the live tail
		return nil
	}
	http.Redirect(w, r, threadPath(req.ThreadId)+"#e"+decimal(res.Entry.Seq), http.StatusSeeOther)
	return nil
}

func (a *app) cancelCommand(w http.ResponseWriter, r *http.Request) error {
	thread := r.PathValue("thread")
	_, err := a.services.threads.CancelCommand(r.Context(), &arbev1.CancelCommandRequest{ThreadId: thread, CommandId: r.PathValue("command")})
	if err != nil {
		return err
	}
	if fromScript(r) {
		w.WriteHeader(http.StatusNoContent) // the command's end arrives with the live tail
		return nil
	}
	http.Redirect(w, r, threadPath(thread), http.StatusSeeOther)
	return nil
}

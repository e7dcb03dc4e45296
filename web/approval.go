package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// approvalView is a bot's request for approval.
type approvalView struct {
	Bot, Tool string
	// Arguments are all that runs, and Size their bytes.
	Arguments []entry.Argument
	Size      int
	Expires   time.Time
	Answer    answeredView
}

// long reports whether the arguments fill more than a screen, so that they are folded. All of them are in the page.
func (v approvalView) long() bool { return v.Size > maxShown }

// answeredView is what a request still offers, or what became of it.
type answeredView struct {
	// Key is the element's id in the page.
	Key string
	// Act is where an answer is sent; empty if the request is over.
	Act string
	// Class and Words say what became of it, and Reason what the person said.
	Class, Words, Reason string
}

func approvalKey(id string) string { return "ask-" + url.PathEscape(id) }

// permissionAsked is a card that has everything that would run, and what became of it.
func permissionAsked(_ context.Context, t *transcript, e entry.Entry, p entry.PermissionAsked) templ.Component {
	v := approvalView{Bot: t.named(p.AgentID), Tool: clip(p.Tool, maxWord), Arguments: entry.Arguments(p.Arguments), Expires: p.Expires()}
	for _, a := range v.Arguments {
		v.Size += len(a.Value)
	}
	answered, over := entry.SeenAs[entry.PermissionAnswered](t.ledger.Of(entry.ApprovalWork, p.ApprovalID).Completed())
	switch {
	case over:
		v.Answer = t.answerView(answered)
	case e.Seq <= t.origin.GetSeq():
		v.Answer = answeredView{approvalKey(p.ApprovalID), "", "cancelled", "This was asked in the thread that this one was forked from.", ""}
	case t.turn(p.TurnID).Ended:
		v.Answer = t.answerView(entry.PermissionAnswered{ApprovalID: p.ApprovalID, Outcome: entry.Withdrawn})
	case time.Now().After(p.Expires()):
		v.Answer = t.answerView(entry.PermissionAnswered{ApprovalID: p.ApprovalID, Outcome: entry.Expired})
	default:
		v.Answer = answeredView{Key: approvalKey(p.ApprovalID), Act: threadPath(t.thread) + "/approvals/" + url.PathEscape(p.ApprovalID)}
	}
	return approvalCard(v)
}

// answerView says what became of a request.
func (t *transcript) answerView(p entry.PermissionAnswered) answeredView {
	v := answeredView{Key: approvalKey(p.ApprovalID), Reason: clip(p.Reason, maxNote)}
	who := cmp.Or(t.people.byID(p.AnsweredBy).Name, "Someone who left")
	switch p.Outcome {
	case entry.Approved:
		v.Class, v.Words = "completed", who+" said yes."
	case entry.Denied:
		v.Class, v.Words = "failed", who+" said no."
	case entry.Expired:
		v.Class, v.Words = "cancelled", "Nobody answered in time, so it did not run."
	default:
		v.Class, v.Words = "cancelled", "The bot's turn ended, so it did not run."
	}
	return v
}

// permissionAnswered is a note, because the card shows the answer, too.
func permissionAnswered(_ context.Context, t *transcript, _ entry.Entry, p entry.PermissionAnswered) templ.Component {
	v := t.answerView(p)
	return noteLine(v.Class, "s-"+v.Class, clip(v.Words+" "+v.Reason, maxNote))
}

// answerApproval answers a bot that asks.
func (a *app) answerApproval(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	verdict := map[string]arbev1.Verdict{"approve": arbev1.Verdict_VERDICT_APPROVE, "deny": arbev1.Verdict_VERDICT_DENY}[r.PostFormValue("verdict")]
	if verdict == arbev1.Verdict_VERDICT_UNSPECIFIED {
		return fault.New(fault.Invalid, "the form says neither yes nor no", "use the buttons")
	}
	_, err := a.services.approvals.AnswerApproval(r.Context(), &arbev1.AnswerApprovalRequest{
		ThreadId: r.PathValue("thread"), Id: r.PathValue("approval"), Verdict: verdict, Reason: r.PostFormValue("reason"),
	})
	return a.doneInThread(w, r, err)
}

package transcript

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Approval is a bot's request for a person's approval.
type Approval struct {
	Bot, Tool string
	// Question reports that it is a question, not a call that would run.
	Question bool
	// Asked is the text of a question; empty if only the arguments have it.
	Asked string
	// Arguments are the complete arguments of the call, and Size their bytes.
	Arguments []entry.Argument
	Size      int
	Answer    ApprovalAnswer
}

// Long reports whether the arguments fill more than a screen and are therefore folded. The page has all of them.
func (a Approval) Long() bool { return a.Size > maxShown }

// ApprovalAnswer is the state of a request: the choices that it offers, or its outcome.
type ApprovalAnswer struct {
	Thread, ID string
	// Open reports that the request can be answered, and Question that the answer is text.
	Open, Question bool
	// Options are answers that a question offers. People may also write another one.
	Options []Option
	// Class and Words describe the outcome, and Reason is the person's comment.
	Class, Words, Reason string
}

// Option is an answer that a question offers.
type Option struct{ Label, About string }

// maxOptions limits the options of a question that a page shows as buttons.
const maxOptions = 8

// questionIn returns a question and the answers that it offers, if it is one question with one answer.
func questionIn(arguments json.RawMessage) (text string, list []Option) {
	var asked struct {
		Questions []struct {
			Question    string
			MultiSelect bool `json:"multiSelect"`
			Options     []struct{ Label, Description string }
		}
	}
	if json.Unmarshal(arguments, &asked) != nil || len(asked.Questions) != 1 || asked.Questions[0].MultiSelect {
		return "", nil
	}
	for _, o := range asked.Questions[0].Options {
		if label := entry.OneLine(entry.Literal(o.Label), maxSummary); label != "" && len(list) < maxOptions {
			list = append(list, Option{label, entry.OneLine(entry.Literal(o.Description), MaxNote)})
		}
	}
	return entry.Literal(entry.Clip(asked.Questions[0].Question, maxShown)), list
}

// OpenApproval describes an open request of a thread.
func OpenApproval(thread string, a *arbev1.Approval) Approval {
	v := Approval{Bot: cmp.Or(entry.Clip(a.AgentName, MaxWord), "A bot"), Tool: entry.Clip(a.Tool, MaxWord), Question: a.Question, Arguments: entry.Arguments([]byte(a.Arguments))}
	v.Answer = ApprovalAnswer{Thread: thread, ID: a.Id, Open: true, Question: a.Question}
	if a.Question {
		v.Asked, v.Answer.Options = questionIn([]byte(a.Arguments))
	}
	return v
}

// permissionAsked shows a card with everything that would run, and the outcome.
func permissionAsked(_ context.Context, k *known, e entry.Entry, p entry.PermissionAsked) Body {
	v := Approval{Bot: k.named(p.AgentID), Tool: entry.Clip(p.Tool, MaxWord), Question: p.Question, Arguments: entry.Arguments(p.Arguments)}
	for _, a := range v.Arguments {
		v.Size += len(a.Value)
	}
	var options []Option
	if p.Question {
		v.Asked, options = questionIn(p.Arguments)
	}
	answered, over := entry.SeenAs[entry.PermissionAnswered](k.ledger.Of(entry.ApprovalWork, p.ApprovalID).Completed())
	v.Answer = ApprovalAnswer{Thread: k.thread, ID: p.ApprovalID, Question: p.Question}
	switch {
	case over:
		v.Answer = k.answerOf(answered)
	case e.Seq <= k.origin.GetSeq():
		v.Answer.Class, v.Answer.Words = "cancelled", "This was asked in the thread that this one was forked from."
	case k.turn(p.Asker().ID).Ended:
		v.Answer = k.answerOf(entry.PermissionAnswered{ApprovalID: p.ApprovalID, Outcome: entry.Withdrawn})
	case time.Now().After(p.Expires()):
		v.Answer = k.answerOf(entry.PermissionAnswered{ApprovalID: p.ApprovalID, Outcome: entry.Expired})
	default:
		v.Answer.Open, v.Answer.Options = true, options
	}
	return v
}

// permissionAnswered shows only a note, because the card shows the answer too.
func permissionAnswered(_ context.Context, k *known, _ entry.Entry, p entry.PermissionAnswered) Body {
	v := k.answerOf(p)
	return note(v.Class, "s-"+v.Class, v.Words+" "+v.Reason)
}

// answerOf describes the state of a request.
func (k *known) answerOf(p entry.PermissionAnswered) ApprovalAnswer {
	v := ApprovalAnswer{Thread: k.thread, ID: p.ApprovalID, Reason: entry.Clip(p.Reason, MaxNote)}
	who := cmp.Or(k.people.ByID(p.AnsweredBy).Name, "Someone who left")
	switch p.Outcome {
	case entry.Approved:
		v.Class, v.Words = "completed", who+" said yes."
	case entry.Denied:
		v.Class, v.Words = "failed", who+" said no."
	case entry.Expired:
		v.Class, v.Words = "cancelled", "Nobody answered in time."
	default:
		v.Class, v.Words = "cancelled", "The bot waited no longer, so it did not run."
	}
	return v
}

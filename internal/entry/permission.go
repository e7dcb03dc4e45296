package entry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A bot may need a person's approval for some tools. When its model calls one, the turn asks and waits. A coding agent asks
// through its runner, for approval or with a question. The entries in this file are the request and its end.

// AskedID and AnsweredID return the ids of the [PermissionAsked] and [PermissionAnswered] about a tool call. result is the
// id of the call's result.
func AskedID(result string) string    { return result + ".asked" }
func AnsweredID(result string) string { return result + ".answered" }

// PermissionAsked records that a turn, or a run, waits for a person to decide whether a tool call may run.
type PermissionAsked struct {
	ApprovalID string `json:"approval_id"`
	// TurnID is the turn that asks; empty if a run asks, namely the one with this Epoch.
	TurnID string `json:"turn_id,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
	// AgentID is the bot.
	AgentID string `json:"agent_id"`
	// CallID is the id of the future entry with the call's result.
	CallID string `json:"call_id"`
	// If the answer is yes, exactly this Tool runs with these Arguments, a JSON object.
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	// ExpiresMS is the time until which it waits, in milliseconds since 1970 (UTC). After that, the answer is no.
	ExpiresMS int64 `json:"expires_ms"`
	// Question means that the call is a question. Its answer is the text that comes with a yes.
	Question bool `json:"question,omitempty"`
}

func (PermissionAsked) Type() string { return "signal.permission.asked" }

func (a PermissionAsked) parts(Entry) []Part {
	return []Part{{Work{ApprovalWork, a.ApprovalID}, Opens}, {Work{CallWork, a.CallID}, Updates}, {a.Asker(), Updates}}
}

// Asker returns the turn or the run that asks.
func (a PermissionAsked) Asker() Work { return AnswerWork(cmp.Or(a.TurnID, RunID(a.Epoch))) }

func (a PermissionAsked) agents() []string { return []string{a.AgentID} }

func (a PermissionAsked) Validate() error {
	switch {
	case a.Tool == "" || a.CallID == "":
		return fault.New(fault.Invalid, "tool, call_id: one is empty", "give the tool and the call")
	case len(a.Tool) > maxTool || oneLine.Replace(Literal(a.Tool)) != a.Tool:
		return fault.Newf(fault.Invalid, "give its name", "tool: it is not a name of at most %d bytes that people can read", maxTool)
	case len(a.Arguments) > MaxAsked:
		return fault.Newf(fault.Exhausted, "ask about less", "arguments: people are asked about at most %d bytes, and this has %d", MaxAsked, len(a.Arguments)).WithReason(fault.TooLarge)
	}
	return validAsker(a.ApprovalID, a.TurnID, a.AgentID, a.Epoch)
}

// maxTool limits the name of a tool, in bytes. A runner chooses it, and every list of questions to people shows it.
const maxTool = 200

// MaxAsked limits the arguments of a call that people are asked about, in bytes. People should be able to read all of them.
const MaxAsked = 256 << 10

// validAsker checks the asker: a turn, whose approval has an id, or a run, for which arbe adds the id.
func validAsker(approval, turn, agent string, epoch int64) error {
	switch {
	case epoch > 0 && turn == "":
		return nil
	case epoch != 0:
		return fault.New(fault.Invalid, "turn_id, epoch: a turn or a run asks", "give one of them")
	case approval == "":
		return fault.New(fault.Invalid, "approval_id: it is empty", "give the approval")
	}
	return validTurn(turn, agent)
}

// Plain includes the whole call.
func (a PermissionAsked) Plain() string {
	var b strings.Builder
	asks := "asks whether it may call"
	if a.Question {
		asks = "asks a question with"
	}
	fmt.Fprintf(&b, "the bot %s %s (approval %s)", asks, a.Tool, a.ApprovalID)
	for _, p := range Arguments(a.Arguments) {
		fmt.Fprintf(&b, "\n%s: %s", p.Name, p.Value)
	}
	return b.String()
}

// The outcomes of a [PermissionAnswered].
const (
	// Approved: a person said yes.
	Approved = "approved"
	// Denied: a person said no.
	Denied = "denied"
	// Expired: nobody answered in time.
	Expired = "expired"
	// Withdrawn: the turn or the run ended, for example because it was stopped, or the agent no longer waits.
	Withdrawn = "withdrawn"
)

// PermissionAnswered records the end of a [PermissionAsked]. If a person answered it, they are the author.
type PermissionAnswered struct {
	ApprovalID string `json:"approval_id"`
	// TurnID and Epoch are as in [PermissionAsked].
	TurnID string `json:"turn_id,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
	// AgentID is the bot.
	AgentID string `json:"agent_id"`
	// Outcome is "approved", "denied", "expired" or "withdrawn". The call runs only if it is "approved".
	Outcome string `json:"outcome"`
	// AnsweredBy is the person; empty if nobody answered.
	AnsweredBy string `json:"answered_by,omitempty"`
	// Reason is the person's comment.
	Reason string `json:"reason,omitempty"`
}

func (PermissionAnswered) Type() string { return "signal.permission.answered" }

func (a PermissionAnswered) parts(e Entry) []Part {
	parts := []Part{{Work{ApprovalWork, a.ApprovalID}, Completes}, {a.Asker(), Updates}}
	if call, found := strings.CutSuffix(e.ID, AnsweredID("")); found {
		parts = append(parts, Part{Work{CallWork, call}, Updates})
	}
	return parts
}

// Asker returns the turn or the run that asked.
func (a PermissionAnswered) Asker() Work { return AnswerWork(cmp.Or(a.TurnID, RunID(a.Epoch))) }

func (a PermissionAnswered) agents() []string { return []string{a.AgentID, a.AnsweredBy} }

func (a PermissionAnswered) Validate() error {
	if a.Outcome == "" {
		return fault.New(fault.Invalid, "outcome: it is empty", "give the outcome")
	}
	return validAsker(a.ApprovalID, a.TurnID, a.AgentID, a.Epoch)
}

func (a PermissionAnswered) Plain() string {
	text := map[string]string{
		Approved: "a person said yes: the call may run", Denied: "a person said no: the call does not run",
		Expired: "nobody answered in time: the call does not run", Withdrawn: "the bot waited no longer before anyone answered: the call does not run",
	}[a.Outcome]
	if text == "" {
		text = a.Outcome
	}
	if a.Reason != "" {
		text += " (" + a.Reason + ")"
	}
	return text
}

// Expires returns the time until which it waits.
func (a PermissionAsked) Expires() time.Time { return time.UnixMilli(a.ExpiresMS) }

// Argument is one argument of a tool call as people read it.
type Argument struct {
	Name string
	// Value is the complete value: text as text, anything else as JSON. Line breaks and tabs stay. Invisible characters, and
	// spaces other than U+0020, are written as their codes, such as "<U+202E>".
	Value string
}

// Arguments returns the arguments of a call, ordered by name. Anything but an object is one argument without a name.
func Arguments(text json.RawMessage) (list []Argument) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return []Argument{{Value: Literal(string(text))}}
	}
	for name, value := range fields {
		var said string
		if json.Unmarshal(value, &said) != nil || string(value) == "null" {
			said = string(value)
		}
		list = append(list, Argument{oneLine.Replace(Literal(name)), Literal(said)})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

var oneLine = strings.NewReplacer("\n", "<U+000A>", "\t", "<U+0009>")

// Literal makes every character of a text visible. Line breaks and tabs stay; other invisible characters, and spaces other
// than U+0020, become their codes, such as "<U+202E>". Unlike [Visible], it drops nothing: for a program, a joiner makes a
// different word.
func Literal(text string) string {
	if isPrintableASCII(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for _, c := range text {
		if c != '\n' && c != '\t' && c != ' ' && (isJoiner(c) || isInvisible(c) || unicode.IsSpace(c)) {
			fmt.Fprintf(&b, "<U+%04X>", c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

package entry

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A turn is a bot's work on a message: it calls a model, runs the tools that the model asks for, and calls it again, until
// the bot has an answer. The steps on the way are [PiAssistant] and [PiToolResult] entries of the bot, and the answer is a
// [Chat] with a [TurnSummary]. The entries in this file record why a turn began, or did not, and how it ended without an
// answer.

// CallResultID returns the id of the result of the n-th tool call of the step with this id.
func CallResultID(step string, n int) string { return step + ".call" + strconv.Itoa(n) }

// CallArgumentsID returns the id under which a run keeps the whole arguments of the n-th tool call of the step with this id.
// No entry has it.
func CallArgumentsID(step string, n int) string { return CallResultID(step, n) + argumentsSuffix }

const argumentsSuffix = ".arguments"

// IsCallArguments reports whether id is from [CallArgumentsID].
func IsCallArguments(id string) bool { return strings.HasSuffix(id, argumentsSuffix) }

// StepOfResult returns the id of the step to which the result of a tool call belongs; ok is false if id is not the id of a
// result.
func StepOfResult(id string) (step string, ok bool) {
	at := strings.LastIndex(id, ".call")
	if at < 0 || AnswerOf(id) == "" {
		return "", false
	}
	return id[:at], true
}

// CallCommandID returns the id of the command that a tool call runs. result is the id of the call's result.
func CallCommandID(result string) string { return result + ".run" }

// TurnEndID returns the id of the [TurnEnded] of a turn.
func TurnEndID(turn string) string { return TurnPrefix + turn + ".end" }

// StepDelta splits the id of the deltas of a step into the id of the step's entry and the rest, which differs from call
// to call of its model. ok is false for deltas of something else.
func StepDelta(id string) (step, call string, ok bool) {
	step, call, ok = strings.Cut(id, "~")
	return step, call, ok && AnswerOf(step) != ""
}

// StepCall returns the model call that the rest of a delta's id names: the n-th call by the attempt-th server that worked on
// the step. Later calls have a greater pair.
func StepCall(attempt, n int) string { return strconv.Itoa(attempt) + "." + strconv.Itoa(n) }

// EarlierCall reports whether one model call, as [StepDelta] returns it, was before another.
func EarlierCall(one, other string) bool {
	number := func(call string) (attempt, n int) {
		first, second, _ := strings.Cut(call, ".")
		attempt, _ = strconv.Atoi(first)
		n, _ = strconv.Atoi(second)
		return attempt, n
	}
	oneAttempt, oneN := number(one)
	otherAttempt, otherN := number(other)
	return cmp.Or(cmp.Compare(oneAttempt, otherAttempt), cmp.Compare(oneN, otherN)) < 0
}

// TurnStarted records that a bot begins a turn, and why.
type TurnStarted struct {
	TurnID string `json:"turn_id"`
	// AgentID is the bot.
	AgentID string `json:"agent_id"`
	// EntryID is the id of the entry that asked.
	EntryID string `json:"entry_id"`
	// Reason is the trigger in one word: "mention", "always", "ambient", "retry".
	Reason string `json:"reason"`
	// PolicyID is the activation policy that matched; empty for a retry.
	PolicyID string `json:"policy_id,omitempty"`
}

func (TurnStarted) Type() string { return "signal.dispatch.turn_started" }

func (s TurnStarted) parts(Entry) []Part {
	return []Part{{Work{TurnWork, s.TurnID}, Opens}, {Work{ChatWork, s.EntryID}, Updates}}
}

func (s TurnStarted) agents() []string { return []string{s.AgentID} }

func (s TurnStarted) Validate() error { return validTurn(s.TurnID, s.AgentID) }

func (s TurnStarted) Plain() string { return "the bot answers (" + s.Reason + ")" }

// TurnSteered records that an entry was passed to a bot's running turn instead of beginning another one.
type TurnSteered struct {
	TurnID  string `json:"turn_id"`
	AgentID string `json:"agent_id"`
	// EntryID is the id of the entry that was passed to the turn.
	EntryID string `json:"entry_id"`
	// Reason is the trigger in one word, as in [TurnStarted].
	Reason string `json:"reason"`
}

func (TurnSteered) Type() string { return "signal.dispatch.turn_steered" }

func (s TurnSteered) parts(Entry) []Part {
	return []Part{{Work{TurnWork, s.TurnID}, Notes}, {Work{ChatWork, s.EntryID}, Updates}}
}

func (s TurnSteered) agents() []string { return []string{s.AgentID} }

func (s TurnSteered) Validate() error { return validTurn(s.TurnID, s.AgentID) }

func (s TurnSteered) Plain() string {
	return "the bot, already at work, was given this, too"
}

// Skipped records that a bot did not answer an entry, although one of its activation policies matched.
type Skipped struct {
	AgentID string `json:"agent_id"`
	// EntryID is the id of the entry that the policy matched.
	EntryID string `json:"entry_id"`
	// Reason is the cause in one word: "cooldown", "chain", "gate", …
	Reason string `json:"reason"`
	// Explanation is the cause in a sentence, for people.
	Explanation string `json:"explanation"`
	PolicyID    string `json:"policy_id,omitempty"`
}

func (Skipped) Type() string { return "signal.dispatch.skipped" }

func (s Skipped) parts(Entry) []Part { return []Part{{Work{ChatWork, s.EntryID}, Updates}} }

func (s Skipped) agents() []string { return []string{s.AgentID} }

func (s Skipped) Validate() error {
	if s.AgentID == "" || s.Reason == "" {
		return fault.New(fault.Invalid, "agent_id, reason: one is empty", "give the bot and the reason")
	}
	return nil
}

func (s Skipped) Plain() string { return "the bot did not answer: " + s.Explanation }

// TurnWaiting records that a turn waits for its model's provider, which is overloaded, silent or unreachable. A long wait has
// more entries, each after about twice the time of the one before.
type TurnWaiting struct {
	TurnID  string `json:"turn_id"`
	AgentID string `json:"agent_id"`
	// Provider is the provider's name for people: "Anthropic".
	Provider string `json:"provider,omitempty"`
	// Reason is the kind of the provider's error, in one word.
	Reason string `json:"reason"`
	// Message is the cause in a few words, for people: "overloaded".
	Message string `json:"message"`
	// DelayMS is the time from the entry to the next try, in milliseconds.
	DelayMS int64 `json:"delay_ms"`
	// Tries is the number of failed tries since the wait began.
	Tries int `json:"tries,omitempty"`
}

func (TurnWaiting) Type() string { return "signal.dispatch.turn_waiting" }

func (w TurnWaiting) parts(Entry) []Part { return []Part{{Work{TurnWork, w.TurnID}, Updates}} }

func (w TurnWaiting) agents() []string { return []string{w.AgentID} }

func (w TurnWaiting) Validate() error { return validTurn(w.TurnID, w.AgentID) }

func (w TurnWaiting) Plain() string {
	return w.For() + "; next try in " + Approximately(time.Duration(w.DelayMS)*time.Millisecond)
}

// About returns it as a sentence about a bot: "Bee is waiting for Anthropic: overloaded; next try in 4 s".
func (w TurnWaiting) About(bot string) string { return bot + " is " + w.Plain() }

// For says for which provider the turn waits, and why: "waiting for Anthropic: overloaded".
func (w TurnWaiting) For() string {
	return "waiting for " + cmp.Or(w.Provider, "the model") + ": " + w.Message
}

// Approximately formats a duration as people say it: "40 s", "3 min 20 s", "2 h 5 min".
func Approximately(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case d < time.Second:
		return "under 1 s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}

// TurnFellBack records that a turn asks a fallback model of its house, because the provider of the bot's model does not
// answer. From then on, that model writes for the bot.
type TurnFellBack struct {
	TurnID  string `json:"turn_id"`
	AgentID string `json:"agent_id"`
	// Model is the ref of the model that did not answer, and Fallback the ref of the model that is asked instead.
	Model    string `json:"model"`
	Fallback string `json:"fallback"`
	// Reason is the kind of the error, in one word, and Message the cause in a few words, for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (TurnFellBack) Type() string { return "signal.dispatch.turn_fell_back" }

func (f TurnFellBack) parts(Entry) []Part { return []Part{{Work{TurnWork, f.TurnID}, Updates}} }

func (f TurnFellBack) agents() []string { return []string{f.AgentID} }

func (f TurnFellBack) Validate() error { return validTurn(f.TurnID, f.AgentID) }

func (f TurnFellBack) Plain() string {
	return fmt.Sprintf("%s does not answer (%s); %s is asked instead", f.Model, f.Message, f.Fallback)
}

// About returns it as a sentence about a bot: "Bee asks c/d, because a/b does not answer: overloaded".
func (f TurnFellBack) About(bot string) string {
	return bot + " asks " + f.Fallback + ", because " + f.Model + " does not answer: " + f.Message
}

// LimitNear records that a turn has used most of one of its limits.
type LimitNear struct {
	TurnID  string `json:"turn_id"`
	AgentID string `json:"agent_id"`
	// Limit names it: "turn_steps", "turn_tokens", "turn_usd", "turn_minutes", "thread_usd_day", "member_usd_day" or
	// "house_usd_day".
	Limit string `json:"limit"`
	// Used and Max are in the unit that the name ends in.
	Used float64 `json:"used"`
	Max  float64 `json:"max"`
}

func (LimitNear) Type() string { return "signal.dispatch.limit_near" }

func (l LimitNear) parts(Entry) []Part { return []Part{{Work{TurnWork, l.TurnID}, Notes}} }

func (l LimitNear) agents() []string { return []string{l.AgentID} }

func (l LimitNear) Validate() error { return validTurn(l.TurnID, l.AgentID) }

func (l LimitNear) Plain() string { return l.About("the bot") }

// About returns it as a sentence about a bot: "Bee has used $0.80 of $1.00 for this turn".
func (l LimitNear) About(bot string) string {
	format, what := "%g", "of its limit "+l.Limit
	switch l.Limit {
	case "turn_steps":
		format, what = "%.0f", "steps of this turn"
	case "turn_tokens":
		format, what = "%.0f", "tokens of this turn"
	case "turn_usd":
		format, what = "$%.2f", "for this turn"
	case "turn_minutes":
		format, what = "%.0f", "minutes of this turn"
	case "thread_usd_day":
		format, what = "$%.2f", "that bots may spend in this thread and the threads around it today"
	case "member_usd_day":
		format, what = "$%.2f", "that the person who asked may spend in this house today"
	case "house_usd_day":
		format, what = "$%.2f", "that bots may spend in this house today"
	}
	return fmt.Sprintf("%s has used "+format+" of "+format+" %s", bot, l.Used, l.Max, what)
}

// The outcomes of a [TurnEnded].
const (
	// TurnFailed: an error that neither the bot nor a retry by the server could fix.
	TurnFailed = "failed"
	// TurnStopped: someone stopped it.
	TurnStopped = "stopped"
	// TurnLimited: it reached a limit, which can be raised.
	TurnLimited = "limited"
	// TurnSilent: the model ended without saying anything.
	TurnSilent = "silent"
)

// TurnEnded records that a turn ended without an answer. An answered turn ends with the [Chat] that has its summary.
type TurnEnded struct {
	TurnID  string `json:"turn_id"`
	AgentID string `json:"agent_id"`
	// EntryID is the id of the entry that asked.
	EntryID string `json:"entry_id"`
	Outcome string `json:"outcome"`
	// Reason is the cause in one word: the kind of a provider's error, or the name of a limit.
	Reason string `json:"reason,omitempty"`
	// Message tells people what happened, and Next what to do now.
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
	// StoppedBy is the agent that stopped it.
	StoppedBy string       `json:"stopped_by,omitempty"`
	Summary   *TurnSummary `json:"summary,omitempty"`
}

func (TurnEnded) Type() string { return "signal.dispatch.turn_ended" }

func (e TurnEnded) parts(Entry) []Part {
	return []Part{{Work{TurnWork, e.TurnID}, Completes}, {Work{ChatWork, e.EntryID}, Updates}}
}

func (e TurnEnded) agents() []string { return []string{e.AgentID, e.StoppedBy} }

func (e TurnEnded) Validate() error { return validTurn(e.TurnID, e.AgentID) }

func (e TurnEnded) Plain() string {
	if e.Next == "" {
		return e.Message
	}
	return e.Message + "; " + e.Next
}

// TurnSummary summarizes a turn and its usage. In a chat that a bot says with a tool, it has only the turn's id.
type TurnSummary struct {
	TurnID string `json:"turn_id"`
	// Answers are the ids of the entries that asked: the one that began the turn, and those that it received later.
	Answers []string `json:"answers,omitempty"`
	// Model is the ref of the model that wrote the answer: "anthropic/claude-sonnet-4-6".
	Model string `json:"model"`
	// Steps counts the model calls, and Commands the commands that it ran.
	Steps    int       `json:"steps"`
	Commands int       `json:"commands,omitempty"`
	Usage    TurnUsage `json:"usage"`
	// DurationMS is the time from the turn's beginning to its end, without its waits for people, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// Cut reports that the answer is incomplete, because the model reached its token limit.
	Cut bool `json:"cut,omitempty"`
	// Thinking is the visible thinking before the answer. Earlier steps have their own.
	Thinking string `json:"thinking,omitempty"`
}

// TurnUsage is the usage of a turn's model calls.
type TurnUsage struct {
	// The tokens, as in [PiUsage].
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	// CostMicros is their cost, in millionths of a US dollar. CostUnknown reports that this omits calls of a model whose
	// price is unknown.
	CostMicros  int64 `json:"cost_micros"`
	CostUnknown bool  `json:"cost_unknown,omitempty"`
}

func validTurn(turn, agent string) error {
	if turn == "" || agent == "" {
		return fault.New(fault.Invalid, "turn_id, agent_id: one is empty", "give the turn and its bot")
	}
	return nil
}

// Foot describes the turn in a few words: "worked for 40 s · 3 commands · $0.02".
func (s TurnSummary) Foot() string {
	parts := []string{s.worked()}
	switch s.Commands {
	case 0:
	case 1:
		parts = append(parts, "1 command")
	default:
		parts = append(parts, fmt.Sprintf("%d commands", s.Commands))
	}
	switch cost := float64(s.Usage.CostMicros) / 1e6; {
	case s.Usage.CostUnknown && cost == 0:
		parts = append(parts, "cost unknown")
	case s.Usage.CostUnknown:
		parts = append(parts, fmt.Sprintf("more than $%.2f", cost))
	case cost > 0 && cost < 0.01:
		parts = append(parts, "less than $0.01")
	default:
		parts = append(parts, fmt.Sprintf("$%.2f", cost))
	}
	if s.Cut {
		parts = append(parts, "cut off at the model's limit")
	}
	return strings.Join(parts, " · ")
}

// worked says how long the bot worked.
func (s TurnSummary) worked() string {
	worked := time.Duration(s.DurationMS) * time.Millisecond
	switch {
	case worked < 10*time.Second:
		return fmt.Sprintf("worked for %.1f s", worked.Seconds())
	case worked < 2*time.Minute:
		return fmt.Sprintf("worked for %.0f s", worked.Seconds())
	}
	return fmt.Sprintf("worked for %.0f min", worked.Minutes())
}

package entry

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Entries never change, so work that takes time needs several: a command and its result, a turn and its steps, a question and
// its answer. The method parts of each kind tells which works its entries belong to, and whether they open, update or
// complete them. Readers pair entries with a [Ledger], or by [Parts], without knowing the kinds.

// Work identifies something that several entries are about.
type Work struct {
	Kind WorkKind
	ID   string
}

// WorkKind is a kind of work.
type WorkKind int

// The kinds of work.
const (
	// CommandWork is a command. Its id is that of its [Command] entry.
	CommandWork WorkKind = iota
	// TurnWork is a bot's turn, by the id of the turn.
	TurnWork
	// StepWork is one answer of a model. Its id is that of the [PiAssistant] entry, the only one about it in the log. Deltas
	// with this id precede it.
	StepWork
	// CallWork is a tool call of a step. Its id is that of the entry that has, or will have, its result.
	CallWork
	// ApprovalWork is a request for a person's approval, by the id of the approval.
	ApprovalWork
	// ChatWork is a message and what bots make of it. Its id is that of the [Chat] entry. It is never complete, because any
	// number of bots may answer it.
	ChatWork
	// HostWork is a host that an environment did not allow; see [HostID].
	HostWork
	// RunWork is one run of the coding agent that drives a thread, by its [RunID].
	RunWork
	// ChildWork is a delegated task, by the id of the child thread. It is never complete, because the child may run again.
	ChildWork
)

// Stage is an entry's role in a work.
type Stage int

const (
	// Opens means that the work begins with the entry.
	Opens Stage = iota + 1
	// Updates means that the work continues.
	Updates
	// UpdatesOldest means that the oldest open work of the kind continues. The entry does not name it.
	UpdatesOldest
	// Notes means that the entry says something about the work without continuing or ending it.
	Notes
	// Completes means that the work has ended.
	Completes
)

// Part is an entry's role in one work.
type Part struct {
	Work
	Stage Stage
}

func partsOf(e Entry, p Payload) []Part {
	of, ok := p.(interface{ parts(Entry) []Part })
	if !ok {
		return nil
	}
	return slices.DeleteFunc(of.parts(e), func(part Part) bool { return part.ID == "" && part.Stage != UpdatesOldest })
}

func agentsOf(p Payload) []string {
	if names, ok := p.(interface{ agents() []string }); ok {
		return names.agents()
	}
	return nil
}

// RunPrefix is the prefix of the ids of runs' entries. Only a runner and arbe itself may use it. A log stores one entry per
// id, so a foreign entry could keep out the run's own.
const RunPrefix = "run."

// RunID returns the id of the [RunWork] of a run: "run.3". It is empty for the epoch 0, which no run has.
func RunID(epoch int64) string {
	if epoch == 0 {
		return ""
	}
	return RunPrefix + strconv.FormatInt(epoch, 10)
}

// RunOf returns the [RunID] of the run that wrote an entry, or a delta, with this id; empty if no run did.
func RunOf(id string) string {
	rest, ok := strings.CutPrefix(id, RunPrefix)
	if !ok {
		return ""
	}
	epoch, _, more := strings.Cut(rest, ".")
	if n, err := strconv.ParseInt(epoch, 10, 64); err != nil || n < 1 || !more || RunID(n) != RunPrefix+epoch {
		return ""
	}
	return RunPrefix + epoch
}

// AnswerOf returns the writer of an entry, or a delta, with this id: the id of a bot's turn, or the [RunID] of a run; empty
// if it was neither.
func AnswerOf(id string) string { return cmp.Or(TurnOf(id), RunOf(id)) }

// AnswerWork returns the work of a result of [AnswerOf]: a bot's turn, or a run.
func AnswerWork(answer string) Work {
	if strings.HasPrefix(answer, RunPrefix) {
		return Work{RunWork, answer}
	}
	return Work{TurnWork, answer}
}

// TurnPrefix is the prefix of the ids of turns' entries. Nobody else may use it. A log stores one entry per id, so a foreign
// entry could keep out the turn's own.
const TurnPrefix = "turn."

// TurnOf returns the id of the turn that wrote an entry, or a delta, with this id; empty if no turn did.
func TurnOf(id string) string {
	rest, ok := strings.CutPrefix(id, TurnPrefix)
	if !ok {
		return ""
	}
	turn, _, _ := strings.Cut(rest, ".")
	return turn
}

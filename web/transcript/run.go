package transcript

import (
	"cmp"
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Spawned is a delegated task.
type Spawned struct {
	Thread, Agent, Runtime, Task string
	Child                        Child
}

// Child is the thread of a delegated task, in its current state.
type Child struct {
	Thread string
	// Row is nil if the thread was deleted or is unknown.
	Row  *arbev1.Thread
	Gone bool
	// Own reports that it is a child of the thread that shows it. In a fork, the children of the source are not.
	Own bool
}

func spawned(_ context.Context, k *known, e entry.Entry, s entry.AgentSpawn) Body {
	row, known := k.children[s.ChildThreadID]
	return Spawned{
		Thread: s.ChildThreadID, Agent: k.named(s.AgentID), Runtime: entry.Clip(s.Runtime, MaxWord), Task: entry.Clip(s.Task, MaxNote),
		Child: Child{Thread: s.ChildThreadID, Row: row, Gone: known && row == nil, Own: e.Seq > k.origin.GetSeq()},
	}
}

// heartbeat shows nothing, because the thread shows that it is running.
func heartbeat(context.Context, *known, entry.Entry, entry.Heartbeat) Body { return nil }

// runFinished shows nothing, because the end of the run shows it.
func runFinished(context.Context, *known, entry.Entry, entry.RunFinished) Body { return nil }

// RunEnd describes how a run ended, and what people can do then.
type RunEnd struct {
	Thread string
	// Class is the outcome: "completed", "failed" or "cancelled". What describes the outcome in a sentence, with the cause.
	Class, What string
	// Next is what to do, and Lines are the last lines of the agent's program.
	Next, Lines string
	// Unbegun reports that the agent never began, so that nothing is lost by trying again.
	Unbegun bool
	// Took is its duration, if known. Usage is the usage of its model calls, or nil if it is unknown. Patch is the artifact
	// with the changes of its working tree, and Files is the number of files in it.
	Took  time.Duration
	Usage *entry.TurnUsage
	Patch string
	Files int
	// PatchError says why the run has no patch, or what its patch lacks.
	PatchError string
}

func runFailed(_ context.Context, k *known, e entry.Entry, f entry.PiFailed) Body {
	v := k.runEnd(e, f.Epoch)
	v.Class, v.What = entry.RunFailed, k.namedDriver()+" failed: "+entry.Clip(f.Error, MaxNote)
	v.Next, v.Lines = entry.Clip(f.Next, MaxNote), entry.Clip(f.LastLines, maxRunLines)
	if v.Unbegun = f.Phase == entry.PhaseDispatch; v.Unbegun {
		v.What = k.namedDriver() + " could not begin: " + entry.Clip(f.Error, MaxNote)
	}
	return v
}

func runLost(_ context.Context, k *known, e entry.Entry, o entry.SessionOrphaned) Body {
	v := k.runEnd(e, o.Epoch)
	v.Class, v.What = entry.RunFailed, k.namedDriver()+" was lost: "+entry.Clip(o.Reason, MaxNote)
	v.Next, v.Lines = "continue: the agent goes on from the log", entry.Clip(o.LastLines, maxRunLines)
	return v
}

// runStatus shows the end of a run, unless the previous entry says why it failed.
func runStatus(k *known, e entry.Entry, s entry.StatusChanged) Body {
	run := k.ledger.Of(entry.RunWork, entry.RunID(s.Epoch))
	v := k.runEnd(e, s.Epoch)
	v.Class = s.To
	switch s.To {
	case entry.RunCompleted:
		v.What = k.namedDriver() + " is done"
	case entry.RunCancelled:
		v.What = k.namedDriver() + " was stopped"
		if asked := run.Seen(entry.CancelRequested{}.Type()); asked != nil && asked.Author != "" {
			v.What += " by " + entry.Clip(cmp.Or(k.people.ByID(asked.Author).Name, "someone"), MaxWord)
		}
	case entry.RunFailed:
		_, failed := entry.Latest[entry.PiFailed](run)
		if _, lost := entry.Latest[entry.SessionOrphaned](run); failed || lost {
			return nil
		}
		v.What = k.namedDriver() + " failed"
	default:
		return note("running", "s-running", k.namedDriver()+" began to work")
	}
	return v
}

// runEnd describes the end of a run from the ledger.
func (k *known) runEnd(e entry.Entry, epoch int64) RunEnd {
	v := RunEnd{Thread: k.thread}
	run := k.ledger.Of(entry.RunWork, entry.RunID(epoch))
	if began := run.Opened(); began != nil {
		v.Took = e.Time.Sub(began.Time)
	}
	if f, ok := entry.Latest[entry.RunFinished](run); ok {
		v.Usage, v.Patch, v.Files, v.PatchError = f.Usage, f.PatchArtifactID, f.PatchFiles, entry.Clip(f.PatchError, MaxNote)
	}
	return v
}

// namedDriver returns the name of the bot that drives the thread, for a sentence.
func (k *known) namedDriver() string {
	if k.driver == "" {
		return "The agent"
	}
	return k.named(k.driver)
}

// maxRunLines limits the last lines of a program in a page, in characters.
const maxRunLines = 4000

// ChildEnd describes how a run of a child thread ended, or says that nobody waits for it any more.
type ChildEnd struct {
	Thread, Class, Words string
	// Patch is the artifact with the changes of its working tree, or "" if it changed nothing.
	Patch string
}

func childFinished(_ context.Context, _ *known, _ entry.Entry, c entry.ChildFinished) Body {
	return ChildEnd{c.ChildThreadID, c.Outcome, entry.Clip(c.Runtime+": "+c.Ending(), MaxNote), c.PatchArtifactID}
}

func childOverdue(_ context.Context, _ *known, _ entry.Entry, c entry.ChildOverdue) Body {
	return ChildEnd{Thread: c.ChildThreadID, Class: "running", Words: entry.Clip(c.Runtime+": "+c.State()+"; nobody waits for it any more", MaxNote)}
}

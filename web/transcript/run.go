package transcript

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Spawned is a task that was delegated.
type Spawned struct {
	Thread, Agent, Runtime, Task string
}

func spawned(_ context.Context, k *known, _ entry.Entry, s entry.AgentSpawn) Body {
	return Spawned{Thread: s.ChildThreadID, Agent: k.named(s.AgentID), Runtime: entry.Clip(s.Runtime, MaxWord), Task: entry.Clip(s.Task, MaxNote)}
}

// heartbeat shows nothing of its own: the thread says that it runs.
func heartbeat(context.Context, *known, entry.Entry, entry.Heartbeat) Body { return nil }

// runFinished shows nothing of its own: the change of status, and for a failed run its cause, say it.
func runFinished(context.Context, *known, entry.Entry, entry.RunFinished) Body { return nil }

// RunFailure says why a run failed, and what to do next.
type RunFailure struct {
	// Words is the cause, Next what to do, and Lines the last lines of the agent's program.
	Words, Next, Lines string
}

func runFailed(_ context.Context, _ *known, _ entry.Entry, f entry.PiFailed) Body {
	return RunFailure{entry.Clip(f.Error, MaxNote), entry.Clip(f.Next, MaxNote), entry.Clip(f.LastLines, maxRunLines)}
}

func runLost(_ context.Context, _ *known, _ entry.Entry, o entry.SessionOrphaned) Body {
	return RunFailure{"The run was lost: " + entry.Clip(o.Reason, MaxNote), "Continue the thread: the agent goes on from the log.", entry.Clip(o.LastLines, maxRunLines)}
}

// maxRunLines limits the last lines of a program in a page, in characters.
const maxRunLines = 4000

// ChildEnd says how a run of a child thread ended.
type ChildEnd struct {
	Thread, Class, Words string
}

func childFinished(_ context.Context, _ *known, _ entry.Entry, c entry.ChildFinished) Body {
	return ChildEnd{c.ChildThreadID, c.Outcome, entry.Clip(c.Plain(), MaxNote)}
}

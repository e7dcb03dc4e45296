package transcript

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// Command is a command, with its result if it has ended.
type Command struct {
	Thread, ID, Line string
	// Key is the block's id in the page. The entry's id is not used for it, because its writer may choose any text.
	Key string
	// LineCut reports that Line is only the beginning.
	LineCut bool
	Seq     int64
	Started time.Time
	// Result is nil while the command runs. ResultSeq is its position in the log.
	Result    *entry.CommandResult
	ResultSeq int64
	// Outcome describes how it ended.
	Outcome string
	// Fork is set when the thread was forked before the command ended. The page then does not show the command as running,
	// because only the source gets its result.
	Fork *arbev1.Origin
	// Build is the build of the sandbox that the command waited for. It is nil if the sandbox already existed.
	Build *entry.EnvironmentPrepared
	// House and Environment identify the page where the recipe can be changed. Environment is empty if the house's default
	// applies.
	House, Environment string
	// OtherSandbox reports that the command before it ran in another sandbox.
	OtherSandbox bool
	// Unfolded shows all the output that the log has.
	Unfolded bool
}

// Class returns the status class of a command's state.
func (c Command) Class() string {
	switch {
	case c.Result != nil:
		return resultClass(*c.Result)
	case c.Fork != nil:
		return "idle"
	}
	return "running"
}

// End returns the end of a finished command's output. The end of a failed command is longer, because readers want to see why
// it failed.
func (c Command) End() markup.Output {
	lines := markup.FoldedLines
	if c.Class() == "failed" {
		lines = markup.FailedLines
	}
	if c.Result.Truncated {
		return markup.OutputEnd(c.Result.OutputTail, lines)
	}
	return markup.OutputEnd(c.Result.Output, lines)
}

// BuildFailed reports whether the command did not run because the build of its sandbox failed. The page then shows the
// failed step, and does not repeat its error.
func (c Command) BuildFailed() bool {
	if c.Build == nil {
		return false
	}
	_, failed := c.Build.Failed()
	return failed
}

// CommandEnd is a line that says how a command further up ended.
type CommandEnd struct {
	Thread string
	// Seq is the position of the result. Start is the position of the command, or 0 if it is unknown.
	Seq, Start           int64
	Line, Class, Outcome string
}

// BuildFailure is the step at which the build of a sandbox failed.
type BuildFailure struct{ Step entry.PreparationStep }

func command(_ context.Context, k *known, e entry.Entry, c entry.Command) Body {
	v := k.commandOf(e.ID)
	v.Seq, v.Started, v.Unfolded = e.Seq, e.Time, k.unfolded
	v.Environment = cmp.Or(c.EnvironmentID, v.Environment)
	if v.Line = c.Line(); !v.Unfolded && len(v.Line) > maxShown {
		v.Line, v.LineCut = entry.Clip(v.Line, maxShown), true
	}
	if result, seq, ended := k.ended(e.ID); ended {
		k.end(&v, result, seq)
	} else if e.Seq <= k.origin.GetSeq() {
		v.Fork = k.origin
	}
	return v
}

// commandOf describes a command from the ledger: where it began, and the build that it waited for.
func (k *known) commandOf(id string) Command {
	v := Command{Thread: k.thread, ID: id, Key: blockKey(id), House: k.house, Environment: k.environment}
	v.Seq, _ = k.started(id)
	if build, ok := entry.Latest[entry.EnvironmentPrepared](k.ledger.Of(entry.CommandWork, id)); ok {
		v.Build = &build
	}
	return v
}

// end adds how a command ended, and remembers where it ran.
func (k *known) end(v *Command, r entry.CommandResult, seq int64) {
	v.Result, v.ResultSeq, v.Outcome = &r, seq, k.outcome(r)
	last := k.lastSandbox
	if r.SandboxID != "" {
		k.lastSandbox = r.SandboxID
	}
	v.OtherSandbox = last != "" && r.SandboxID != "" && r.SandboxID != last
}

// commandResult shows nothing directly after its command, because the command's block shows the result. Further down, it is a
// line that links to the command.
func commandResult(_ context.Context, k *known, e entry.Entry, r entry.CommandResult) Body {
	start, line := k.started(r.CommandID)
	// A bot may run several commands at once, whose results would otherwise be mixed up.
	if start > 0 && (start == k.lastSaid || entry.TurnOf(r.CommandID) != "") {
		return nil
	}
	return CommandEnd{Thread: k.thread, Seq: e.Seq, Start: start, Line: line, Class: resultClass(r), Outcome: k.outcome(r)}
}

// prepared shows nothing if its command's block shows the build.
func prepared(_ context.Context, k *known, e entry.Entry, p entry.EnvironmentPrepared) Body {
	if _, placed := k.ledger.Placed(e.ID); placed {
		return nil
	}
	if step, failed := p.Failed(); failed {
		return BuildFailure{step}
	}
	return note("", "box", p.Plain())
}

// resultClass returns the status class of a command's end.
func resultClass(r entry.CommandResult) string {
	switch {
	case r.Cancelled:
		return "cancelled"
	case r.Failed():
		return "failed"
	}
	return "completed"
}

func blockKey(commandID string) string {
	sum := sha256.Sum256([]byte(commandID))
	return "c" + hex.EncodeToString(sum[:8])
}

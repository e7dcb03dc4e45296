package entry

import (
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// SandboxResumed records that the thread's sandbox was dead and that another one replaced it.
// It is written to every thread that was on the dead sandbox, in the transaction that moves them, so that log and row
// always agree.
type SandboxResumed struct {
	SandboxID         string `json:"sandbox_id"`
	PreviousSandboxID string `json:"previous_sandbox_id"`
}

func (SandboxResumed) Type() string { return "sandbox_resumed" }

func (r SandboxResumed) Validate() error {
	if r.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the new sandbox's id")
	}
	return nil
}

func (r SandboxResumed) Plain() string {
	return fmt.Sprintf("sandbox %s was gone; the thread continues in %s", r.PreviousSandboxID, r.SandboxID)
}

// EnvironmentPrepared records how a new sandbox was prepared: its repository was cloned and its setup script run. It is
// written only if the environment has either, or exceeds the operator's limits; otherwise there is nothing to report.
type EnvironmentPrepared struct {
	SandboxID string `json:"sandbox_id"`
	// Steps are the steps in order. The last one failed if its exit code is not 0.
	Steps []PreparationStep `json:"steps"`
}

// PreparationID returns the id of the [EnvironmentPrepared] of a sandbox. It is derived from the sandbox's id, because
// the output of the build is published as deltas of that entry before the entry is written.
func PreparationID(sandboxID string) string { return "prepared." + sandboxID }

// PreparedSandbox reports whether an id is a [PreparationID], and returns its sandbox.
func PreparedSandbox(entryID string) (sandboxID string, ok bool) {
	return strings.CutPrefix(entryID, "prepared.")
}

// PreparationStep is one step of preparing a sandbox.
type PreparationStep struct {
	// Name is "clone", "setup", or [ReducedLimits].
	Name       string `json:"name"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	// Output is the end of what it printed.
	Output string `json:"output,omitempty"`
}

// ReducedLimits is the name of the step in which limits were reduced to the operator's; its output lists them.
const ReducedLimits = "limits reduced"

func (EnvironmentPrepared) Type() string { return "signal.environment.prepared" }

// parts: a sandbox is prepared for the command that has waited longest.
func (EnvironmentPrepared) parts(Entry) []Part { return []Part{{Work{CommandWork, ""}, UpdatesOldest}} }

func (p EnvironmentPrepared) Validate() error {
	if p.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the sandbox's id")
	}
	return nil
}

// Failed returns the step that failed, if any.
func (p EnvironmentPrepared) Failed() (PreparationStep, bool) {
	if n := len(p.Steps); n > 0 && p.Steps[n-1].ExitCode != 0 {
		return p.Steps[n-1], true
	}
	return PreparationStep{}, false
}

// Plain lists the steps: "sandbox ready: clone 1.2s, setup 3s".
func (p EnvironmentPrepared) Plain() string {
	var steps []string
	for _, s := range p.Steps {
		if s.Name == ReducedLimits {
			steps = append(steps, ReducedLimits+" ("+strings.ReplaceAll(s.Output, "\n", "; ")+")")
			continue
		}
		steps = append(steps, fmt.Sprintf("%s %.1fs", s.Name, float64(s.DurationMS)/1000))
	}
	if f, failed := p.Failed(); failed {
		return fmt.Sprintf("sandbox not ready: %s failed with exit code %d\n%s", f.Name, f.ExitCode, f.Output)
	}
	return "sandbox ready: " + strings.Join(steps, ", ")
}

package entry

import (
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// SandboxResumed says that the thread's sandbox was dead and another one took its place (seed 000,
// resume flow). It is written to every thread that was on the dead one, together with the repointing.
type SandboxResumed struct {
	SandboxID         string `json:"sandbox_id"`
	PreviousSandboxID string `json:"previous_sandbox_id"`
}

// Type is "sandbox_resumed".
func (SandboxResumed) Type() string { return "sandbox_resumed" }

// Validate asks for the new sandbox.
func (r SandboxResumed) Validate() error {
	if r.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the new sandbox's id")
	}
	return nil
}

// Plain tells it in a sentence.
func (r SandboxResumed) Plain() string {
	return fmt.Sprintf("sandbox %s was gone; the thread goes on in %s", r.PreviousSandboxID, r.SandboxID)
}

// EnvironmentPrepared says how a new sandbox was made ready: its repository cloned, its setup script
// run. It is written only when the recipe asks for either.
type EnvironmentPrepared struct {
	SandboxID string `json:"sandbox_id"`
	// Steps are what was done, in order; the last one failed when its exit code is not 0.
	Steps []PreparationStep `json:"steps"`
}

// PreparationStep is one step of making a sandbox ready.
type PreparationStep struct {
	// Name is "clone" or "setup".
	Name       string `json:"name"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	// Output is the end of what it printed.
	Output string `json:"output,omitempty"`
}

// Type is "signal.environment.prepared".
func (EnvironmentPrepared) Type() string { return "signal.environment.prepared" }

// Validate asks for the sandbox.
func (p EnvironmentPrepared) Validate() error {
	if p.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the sandbox's id")
	}
	return nil
}

// Failed is the step that failed, if any.
func (p EnvironmentPrepared) Failed() (PreparationStep, bool) {
	if n := len(p.Steps); n > 0 && p.Steps[n-1].ExitCode != 0 {
		return p.Steps[n-1], true
	}
	return PreparationStep{}, false
}

// Plain names the steps: "sandbox ready: clone 1.2s, setup 3s".
func (p EnvironmentPrepared) Plain() string {
	var steps []string
	for _, s := range p.Steps {
		steps = append(steps, fmt.Sprintf("%s %.1fs", s.Name, float64(s.DurationMS)/1000))
	}
	if f, failed := p.Failed(); failed {
		return fmt.Sprintf("sandbox not ready: %s failed with exit code %d\n%s", f.Name, f.ExitCode, f.Output)
	}
	return "sandbox ready: " + strings.Join(steps, ", ")
}

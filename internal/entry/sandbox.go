package entry

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// SandboxResumed records that the thread continues in another sandbox, and what happened to its files. It is written to every
// moved thread, in the transaction that moves them, so that log and row always agree.
type SandboxResumed struct {
	SandboxID         string `json:"sandbox_id"`
	PreviousSandboxID string `json:"previous_sandbox_id"`
	// Left means that the thread left the previous sandbox, which may still exist. Otherwise that one was gone.
	Left bool `json:"left,omitempty"`
	// SavedMS is the time when the files were saved, in milliseconds since 1970; 0 if they never were.
	SavedMS int64 `json:"saved_ms,omitempty"`
	// Tree tells what happened to each part of the working tree. Entries of earlier versions lack it.
	Tree []TreePart `json:"tree,omitempty"`
}

// TreePart is a part of a working tree: a repository, or other files.
type TreePart struct {
	// Folder is its path in the working tree; "." is the tree itself.
	Folder string `json:"folder"`
	// Commit is the commit of its repository that the new sandbox has; empty for other files.
	Commit string `json:"commit,omitempty"`
	// Files is the number of restored files that differ from the commit or, for other files, of all restored files.
	Files int `json:"files,omitempty"`
	// Commits is the number of commits that only the old sandbox had, and that came back as uncommitted changes.
	Commits int `json:"commits,omitempty"`
	// ArtifactID is the artifact with the saved files; empty if nothing differed.
	ArtifactID string `json:"artifact_id,omitempty"`
	// Missing tells what was not saved of it. Problem tells why it did not come back; empty if it did.
	Missing string `json:"missing,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func (SandboxResumed) Type() string { return "sandbox_resumed" }

func (r SandboxResumed) Validate() error {
	if r.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the new sandbox's id")
	}
	return nil
}

func (r SandboxResumed) Plain() string {
	said := fmt.Sprintf("sandbox %s was gone; the thread continues in %s", r.PreviousSandboxID, r.SandboxID)
	if r.Left {
		said = fmt.Sprintf("the thread left sandbox %s and continues in %s", r.PreviousSandboxID, r.SandboxID)
	}
	if files := r.Files(); files != "" {
		said += ". " + files
	}
	return said
}

// Files describes what happened to the files: "Restored as saved on 2 January 15:04 UTC: commit 1a2b3c4 with 3 changed
// files." It is empty if the entry does not tell.
func (r SandboxResumed) Files() string {
	var back, lost []string
	for _, p := range r.Tree {
		if p.Problem != "" {
			lost = append(lost, p.named(p.Problem)+p.kept())
			continue
		}
		back = append(back, p.named(p.restored()))
		if p.Missing != "" {
			lost = append(lost, p.named(p.Missing))
		}
	}
	var said []string
	if len(back) > 0 {
		head := "Restored"
		if r.SavedMS != 0 {
			head += " as saved on " + time.UnixMilli(r.SavedMS).UTC().Format("2 January 15:04 UTC")
		}
		said = append(said, head+": "+strings.Join(back, "; ")+".")
	}
	if len(lost) > 0 {
		said = append(said, "Not restored: "+strings.Join(lost, "; ")+".")
	}
	return strings.Join(said, " ")
}

// named puts the folder before the text about a part, unless the part is the whole tree.
func (p TreePart) named(said string) string {
	if p.Folder == "." || p.Folder == "" {
		return said
	}
	return p.Folder + ": " + said
}

// restored describes what came back of a part.
func (p TreePart) restored() string {
	files := count(p.Files, "file")
	if p.Commit == "" {
		return files
	}
	said := "commit " + p.Commit[:min(len(p.Commit), 7)]
	if p.Files > 0 {
		said += " with " + count(p.Files, "changed file")
	}
	if p.Commits > 0 {
		said += " (" + count(p.Commits, "commit") + " of the old sandbox came back as changes)"
	}
	return said
}

// kept tells where a part that did not come back is kept.
func (p TreePart) kept() string {
	if p.ArtifactID == "" {
		return ""
	}
	return " (it is kept: arbe artifact get " + p.ArtifactID + ")"
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.Itoa(n) + " " + of + "s"
}

// SandboxWoken records that the thread's sandbox was asleep when it was needed, and is awake now. A provider puts a box to
// sleep that nobody uses, which ends the programs in its background.
type SandboxWoken struct {
	SandboxID string `json:"sandbox_id"`
	// TookMS is how long the waking took, in milliseconds.
	TookMS int64 `json:"took_ms"`
}

func (SandboxWoken) Type() string { return "signal.sandbox.woken" }

func (w SandboxWoken) Validate() error {
	if w.SandboxID == "" {
		return fault.New(fault.Invalid, "sandbox_id: it is empty", "give the sandbox's id")
	}
	return nil
}

func (w SandboxWoken) Plain() string {
	return fmt.Sprintf("the sandbox was asleep and is awake after %.1fs; the programs in its background had ended", float64(w.TookMS)/1000)
}

// EnvironmentPrepared records how a new sandbox was prepared: its repository was cloned and its setup script run. It is
// written only if the environment has either, or exceeds the operator's limits.
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
	// Name is "clone", "setup", [CachedEnvironment], or [ReducedLimits].
	Name       string `json:"name"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	// Output is the end of its output.
	Output string `json:"output,omitempty"`
}

// ReducedLimits is the name of the step in which limits were reduced to the operator's; its output lists them.
const ReducedLimits = "limits reduced"

// CachedEnvironment is the name of the step that copies the files of an earlier build instead of cloning and running the
// setup. Its output says when that build was.
const CachedEnvironment = "cached environment"

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
		name := s.Name
		if name == CachedEnvironment {
			name = "from the " + name + ", " + s.Output + ","
		}
		steps = append(steps, fmt.Sprintf("%s %.1fs", name, float64(s.DurationMS)/1000))
	}
	if f, failed := p.Failed(); failed {
		return fmt.Sprintf("sandbox not ready: %s failed with exit code %d\n%s", f.Name, f.ExitCode, f.Output)
	}
	return "sandbox ready: " + strings.Join(steps, ", ")
}

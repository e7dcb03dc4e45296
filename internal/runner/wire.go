package runner

import "github.com/arbe-dev/arbe/internal/entry"

// What the runner posts besides messages.

type heartbeat struct {
	Epoch    int64  `json:"epoch"`
	Phase    string `json:"phase"`
	LastTool string `json:"last_tool,omitempty"`
	Through  int64  `json:"through,omitempty"`
}

func (heartbeat) Type() string { return "signal.thread.heartbeat" }

type chunk struct {
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

func (chunk) Type() string { return "pi.chunk" }

type runFinished struct {
	Epoch      int64            `json:"epoch"`
	Outcome    string           `json:"outcome"`
	StopReason string           `json:"stop_reason,omitempty"`
	ExitCode   *int             `json:"exit_code,omitempty"`
	Error      string           `json:"error,omitempty"`
	Phase      string           `json:"phase,omitempty"`
	LastLines  string           `json:"last_lines,omitempty"`
	Usage      *entry.TurnUsage `json:"usage,omitempty"`
	Result     string           `json:"result,omitempty"`
	Through    int64            `json:"through,omitempty"`
	PatchPath  string           `json:"patch_path,omitempty"`
	// PatchBytes, PatchFiles and PatchSHA256 describe the file at PatchPath; PatchError says why there is none, or what it lacks.
	PatchBytes  int64  `json:"patch_bytes,omitempty"`
	PatchFiles  int    `json:"patch_files,omitempty"`
	PatchSHA256 string `json:"patch_sha256,omitempty"`
	// PatchBase is the commit that the patch applies to: that of the first run in the sandbox.
	PatchBase  string `json:"patch_base,omitempty"`
	PatchError string `json:"patch_error,omitempty"`
}

func (runFinished) Type() string { return "signal.thread.run_finished" }

// The outcomes, and the phases in which a run fails.
const (
	completed = "completed"
	failed    = "failed"
	cancelled = "cancelled"

	inDispatch    = "dispatch"
	inExecution   = "execution"
	inObservation = "observation"
)

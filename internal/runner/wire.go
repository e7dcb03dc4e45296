package runner

import "github.com/arbe-dev/arbe/internal/entry"

// The types that the runner posts besides messages.

type chunk struct {
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

func (chunk) Type() string { return "pi.chunk" }

// runFinished is the run's report, with the data to check the patch.
type runFinished struct {
	entry.RunFinished
	// PatchBytes, PatchFiles and PatchSHA256 describe the file at PatchPath. PatchBase is the commit that it applies to:
	// the one at the first run in the sandbox. PatchError says why there is no patch, or what is missing from it.
	PatchBytes  int64  `json:"patch_bytes,omitempty"`
	PatchFiles  int    `json:"patch_files,omitempty"`
	PatchSHA256 string `json:"patch_sha256,omitempty"`
	PatchBase   string `json:"patch_base,omitempty"`
	PatchError  string `json:"patch_error,omitempty"`
}

// unfinished returns the report of a run that failed.
func unfinished(phase, why string) runFinished {
	return runFinished{RunFinished: entry.RunFinished{Outcome: entry.RunFailed, Phase: phase, Error: why}}
}

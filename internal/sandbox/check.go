package sandbox

import (
	"time"
)

// The results. A warning does not keep the environment from building sandboxes. A step is skipped if there is nothing
// to do, or if one before it failed.
const (
	CheckOK      CheckResult = "ok"
	CheckWarning CheckResult = "warning"
	CheckFailed  CheckResult = "failed"
	CheckSkipped CheckResult = "skipped"
)

// Check is one step of a diagnosis.
type Check struct {
	Name     string
	Result   CheckResult
	Duration time.Duration
	// Message describes the result, and Next the remedy. Output is the end of a script's output. Each may be
	// empty.
	Message, Next, Output string
}

// CheckResult is the result of a step of a diagnosis.
type CheckResult string

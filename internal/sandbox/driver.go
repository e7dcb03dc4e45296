// Package sandbox gives a thread its machine: it resolves the right one (live: use, dead: resume, none:
// create), runs commands on it, and knows which ones may be deleted.
//
// What a machine is made of is a [Driver]'s business; drivers are leaf packages below this one, and
// nothing above this package names one. The suite every driver passes is in sandboxtest.
package sandbox

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// Driver makes and uses boxes at one provider. A box is one machine with one working tree.
//
// Methods are safe for concurrent use, also on one box. A ref is what Create returned; a ref whose box
// is gone makes every method but Probe, Destroy and List fail with [fault.NotFound]. Errors are
// [*fault.Error]s that a person may read.
type Driver interface {
	// Create makes a box and returns once commands can run in it. It is idempotent by Spec.ID: a
	// second call with one ID returns the same ref. When it fails it leaves nothing behind.
	Create(ctx context.Context, spec Spec) (ref string, err error)

	// Exec runs one command and returns when it has ended. Output is written to the command's Stdout
	// and Stderr as it comes, always drained, never buffered whole. When ctx ends or the time limit
	// passes, the command and everything it started in the foreground is killed before Exec returns: ctx
	// with ctx's error, the limit with Result.TimedOut. A command that could not be started because
	// it does not exist has exit code 127, one that is not executable 126, one that a signal ended
	// 128+signal: these are results, not errors. A [fault.NotFound] promises that the command was not
	// started: it may be run again elsewhere. Of a box that goes while the command runs it is a result.
	Exec(ctx context.Context, ref string, cmd Command) (Result, error)

	// Start starts a command that goes on until it ends by itself or the box is destroyed, and returns
	// once it runs. Its output goes nowhere; Stdin, Stdout, Stderr and Timeout must be zero.
	Start(ctx context.Context, ref string, cmd Command) error

	// Upload writes a file into the box, as the box's user, replacing what was there. Parent
	// directories are made. The path is absolute, or relative to the working tree; it is resolved
	// inside the box, so that no link leads out of it. The file appears whole or not at all.
	Upload(ctx context.Context, ref, path string, mode fs.FileMode, content io.Reader) error

	// Download opens a regular file of the box. The caller closes it.
	Download(ctx context.Context, ref, path string) (io.ReadCloser, error)

	// Probe asks the provider whether the box still exists. A provider that cannot be asked is
	// Unknown with a nil error; an error is for a malformed ref only.
	Probe(ctx context.Context, ref string) (Liveness, error)

	// Destroy deletes the box with its files and everything that runs in it. Destroying a box that
	// is gone succeeds.
	Destroy(ctx context.Context, ref string) error

	// List returns the boxes whose labels match: an empty field of want matches everything.
	List(ctx context.Context, want Labels) ([]Box, error)

	// Close ends what must not outlive this server (for a local driver: all that runs in its boxes;
	// their files stay for the next start) and releases the driver. Nothing may be called after it.
	Close(ctx context.Context) error
}

// Spec says which box to make.
type Spec struct {
	// ID is the sandbox's id: [a-z0-9-], at most 40 characters.
	ID     string
	Labels Labels
	// Image names the root file system, in the provider's terms (an OCI reference for local).
	// Empty is the driver's own base.
	Image  string
	Limits Limits
}

// Labels say whom a box belongs to, so that it can be found and swept. They appear at the provider as
// arbe.house, arbe.thread and arbe.environment.
type Labels struct{ House, Thread, Environment string }

// Limits bound what a box may use. A zero field means the driver's default.
type Limits struct {
	MemoryMB int     `json:"memory_mb,omitempty"` // memory of all its processes together, in MiB
	DiskMB   int     `json:"disk_mb,omitempty"`   // all it may write, in MiB
	PIDs     int     `json:"pids,omitempty"`      // processes and threads at once
	CPUs     float64 `json:"cpus,omitempty"`      // cores
}

// The user and the paths that every box has, whatever its driver.
const (
	// Workspace is the working tree, and the directory commands start in.
	Workspace = "/workspace"
	// Home is the box user's home directory.
	Home = "/home/agent"
)

// Command is one command to run in a box.
type Command struct {
	// Argv is the program and its arguments; nothing is added, no shell is involved.
	Argv []string
	// Dir is where it starts; empty is [Workspace].
	Dir string
	// Env is added to the box's own small environment (PATH, HOME, USER, LANG, TERM). Values reach
	// the command's environment only: never an argument list, never a file.
	Env map[string]string
	// Stdin is what it reads; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr receive its output as it comes, from one goroutine each; nil drops it. A
	// writer that fails stops receiving and does not stop the command.
	Stdout, Stderr io.Writer
	// Timeout ends the command; zero is no limit.
	Timeout time.Duration
}

// Result is how a command ended.
type Result struct {
	ExitCode int
	Duration time.Duration
	// TimedOut: Command.Timeout passed; ExitCode is 124.
	TimedOut bool
	// OutOfMemory: the box's memory limit killed it (or a process it started), as far as the driver can tell.
	OutOfMemory bool
}

// Box is one box as the provider lists it.
type Box struct {
	Ref    string
	ID     string
	Labels Labels
	// CreatedAt is when the provider says it was made.
	CreatedAt time.Time
}

// Liveness is what a provider says of a box.
type Liveness string

// The three answers. Unknown changes nothing: a network blip never buries a real box.
const (
	Live    Liveness = "live"
	Gone    Liveness = "gone"
	Unknown Liveness = "unknown"
)

// Package sandbox gives a thread its sandbox. It resolves the right one (live: use it; dead: replace it; none: create
// one), runs commands in it, and knows which sandboxes may be deleted.
//
// A box is what a [Driver] creates for a sandbox at a provider. Drivers are leaf packages below this one, and nothing
// above this package names one. The test suite for drivers is in sandboxtest.
//
// Each type here uses only those before it: [Account] says how houses bring keys of their own to a provider; [Recipe] describes
// what a box is built from, and [Maxima] how much it may ask for; [Environments] stores recipes; [Machines] tracks which machines
// are there; [Sandboxes] stores the records of boxes; trees saves what is in them; builds builds the box of a record, with what was
// saved of the one that it replaces; [Reaper] destroys boxes; [Resolver] finds the sandbox of a thread.
package sandbox

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Driver creates and uses boxes at one provider. A box is one machine with one working tree.
//
// Methods are safe for concurrent use, also for one box. A ref is what Create returned. If its box is gone, every
// method but Probe, Destroy and List fails with [fault.NotFound]. Errors are [*fault.Error]s that people may read.
type Driver interface {
	// Create creates a box and returns when commands can run in it. It is idempotent by Spec.ID: a second call with the
	// same ID returns the same ref. If it fails, it leaves nothing behind.
	Create(ctx context.Context, spec Spec) (ref string, err error)

	// Exec runs one command and returns when it has ended. Background processes of the command continue until the box
	// is stopped. A driver may stop an idle box, and starts it again with its files at its next use. Output is written
	// to the command's Stdout and Stderr as it comes, and is never buffered whole: a command waits for a slow writer.
	// If ctx ends or the time limit passes, the command and everything it started in the foreground are killed before
	// Exec returns, with ctx's error or with Result.TimedOut. The exit code is 127 if the command does not exist, 126
	// if it is not executable, and 128+n if signal n ended it; these are results and not errors. A [fault.NotFound]
	// promises that the command was not started, so it may be run elsewhere. If the box disappears while the command
	// runs, that is a result.
	Exec(ctx context.Context, ref string, cmd Command) (Result, error)

	// Upload writes a file into the box as the box's user, and replaces an existing one. It creates parent directories.
	// The path is absolute or relative to the working tree, and is resolved inside the box, so that no link leads out
	// of it. The file appears completely or not at all.
	Upload(ctx context.Context, ref, path string, mode fs.FileMode, content io.Reader) error

	// Download opens a regular file of the box. The caller must close it.
	Download(ctx context.Context, ref, path string) (io.ReadCloser, error)

	// Probe asks the provider whether the box still exists. If the provider cannot be asked, the answer is Unknown with
	// a nil error; only a malformed ref is an error.
	Probe(ctx context.Context, ref string) (Liveness, error)

	// Destroy deletes the box with its files and everything that runs in it. Destroying a box that is gone succeeds.
	Destroy(ctx context.Context, ref string) error

	// Quarantine stops a box that the database does not know, and keeps its files at the returned place until the
	// operator deletes them. The box still exists: Probe and List show it, Destroy deletes it, and its next use takes
	// it out of quarantine. Repeating it is harmless.
	Quarantine(ctx context.Context, ref string) (place string, err error)

	// List returns the boxes whose labels match want, of which an empty field matches everything.
	List(ctx context.Context, want Labels) ([]Box, error)

	// Close ends what must not outlive this server and releases the driver. For a local driver that is everything that
	// runs in its boxes, except launched commands; the files stay for the next start. No method may be called after
	// Close.
	Close(ctx context.Context) error
}

// Bound is a [Driver] whose boxes may be bound to one machine, where no other driver reaches them.
type Bound interface {
	Driver

	// Machine returns the durable identity of the machine; empty if every server reaches the boxes.
	Machine() string
}

// Gated is a [Driver] whose boxes reach what their policies allow, and nothing else.
type Gated interface {
	Driver

	// SetEgress replaces the policy of a box. It holds for the next connection, and ends those that it does not allow. It
	// does nothing if the box has this policy.
	SetEgress(ctx context.Context, ref string, p egress.Policy) error

	// OnRefusal has a function called with the refused connections of boxes, from any goroutine, but not with more than some
	// each second.
	OnRefusal(f func(Refusal))
}

// Dialer is a [Driver] that reaches the TCP ports of programs in its boxes. It states [Guarantees].Ports.
type Dialer interface {
	Driver

	// Asleep reports whether a box does not run, so that what ran in it has ended. It starts nothing.
	Asleep(ctx context.Context, ref string) (bool, error)

	// Dial connects to a port of the box's own loopback, over IPv4, or else IPv6. It may start a box that does not run. If
	// nothing accepts the connection, the error is [ErrNobodyListens]. ctx limits only the connecting; the connection
	// lasts until either side or the box ends it. It leads to programs of the box and to nothing else, whatever is in the box:
	// on ports on which the server itself listens inside, nothing listens.
	Dial(ctx context.Context, ref string, port uint16) (Conn, error)
}

// Conn is a connection to a port of a box. It need not support deadlines.
type Conn interface {
	net.Conn
	// CloseWrite ends what is sent. The other direction goes on.
	CloseWrite() error
}

// ErrNobodyListens is the error of [Dialer].Dial for a port on which no program of the box listens.
var ErrNobodyListens = fault.New(fault.Unavailable, "nothing listens on this port in the sandbox", "start the program that does, and try again").WithReason(fault.NobodyListens)

// Doored is a [Driver] that leads its boxes to this server's doors itself.
type Doored interface {
	Driver

	// Door returns the origin, such as http://arbe.internal, at which programs in every box reach the server's doors for
	// them, whatever the box's policy; empty if they cannot.
	Door() string
}

// Offline is a [Driver] whose boxes may be unable to reach a network.
type Offline interface {
	Driver

	// Offline reports whether nothing in its boxes reaches a network other than their own loopback, and so not the server's
	// doors either.
	Offline() bool
}

// Imaged is a [Driver] that gets the images of its boxes itself.
type Imaged interface {
	Driver

	// Pull gets an image, so that creating a box from it needs nobody else. An image that is there is not fetched again.
	Pull(ctx context.Context, image string) error
}

// Stating is a [Driver] that states what its boxes guarantee. Of one that does not, nothing is known.
type Stating interface {
	Driver

	// Guarantees returns what every box guarantees. It does not change.
	Guarantees() Guarantees
}

// Guarantees are what a driver states about its boxes. What is false is not promised: it may hold by what the provider does
// on its own, but nobody may rely on it.
type Guarantees struct {
	// MemoryLimit: Limits.MemoryMB, PIDs and CPUs are enforced.
	MemoryLimit bool
	// DiskLimit: Limits.DiskMB is enforced.
	DiskLimit bool
	// KillsAll: a time-out or cancellation ends everything that the command started, however it hides.
	KillsAll bool
	// NoNetwork: a box has no network except its own loopback, unless its policy allows one.
	NoNetwork bool
	// OwnKernel: a box has its own kernel, so that it shows and reaches nothing of a machine's.
	OwnKernel bool
	// OwnShare: a box cannot use up what its machine has in limited number, such as pseudo-terminals.
	OwnShare bool
	// OutlastsLeftovers: whatever a command leaves in the background, its box serves the next commands.
	OutlastsLeftovers bool
	// SecretsSeparate: no command can read the environment or memory of another that was given an environment.
	SecretsSeparate bool
	// Ports: the driver is a [Dialer] that reaches every program in a box that listens on its loopback.
	Ports bool
	// Layers: the driver is a [Layered] one.
	Layers bool
	// StopsIdle: the provider may stop a box in which nobody runs commands, which ends what runs in the background.
	StopsIdle bool
	// UserID is the user id of commands inside; negative if the image decides.
	UserID int
}

// Layered is a [Driver] that keeps the files of prepared boxes as layers, with which other boxes begin. It states
// [Guarantees].Layers. A layer belongs to the house and the environment that the labels of its box name, and boxes with
// other ones never get it. The driver may drop any layer at any time, as when space is short.
type Layered interface {
	Driver

	// KeepLayer keeps the files of a box under a key, with a note of some KiB. It ends what runs in the box, whose next use
	// starts it again. A layer that is there stays as it is. For more layers than there is room for, the error is a
	// [fault.Exhausted]; the box is not affected.
	KeepLayer(ctx context.Context, ref, key string, note []byte) error

	// TakeLayer replaces the files of a new box with those of a layer, and returns it. A layer that is not there, or that is
	// too old, is a [fault.NotFound]. The box is as it was then, and after any other error.
	TakeLayer(ctx context.Context, ref, key string) (Layer, error)

	// Layers lists the layers whose labels match. They have no Thread.
	Layers(ctx context.Context, want Labels) ([]Layer, error)

	// DropLayer deletes a layer. Deleting one that is gone succeeds.
	DropLayer(ctx context.Context, id string) error
}

// Layer describes the kept files of a prepared box.
type Layer struct {
	ID     string
	Labels Labels
	Note   []byte
	MadeAt time.Time
	// Size is how much space it takes up, in bytes.
	Size int64
}

// Measured is a [Bound] driver that knows what its boxes and layers take up of its machine's disk.
type Measured interface {
	Bound

	// Occupied returns what they take up, by house. It must be quick.
	Occupied(ctx context.Context) (map[string]Occupied, error)
}

// Occupied is what a house takes up of a machine's disk, in bytes.
type Occupied struct {
	// Boxes is what boxes take up, by [Spec].ID.
	Boxes map[string]int64
	// Layers is what all layers take up together.
	Layers int64
	// Most is what the house may take up; 0 for no limit.
	Most int64
}

// Launcher is a [Driver] with commands that outlive the server that started them. A driver that is opened later over
// the same boxes finds their output and how they ended. The other promises are those of Driver.
type Launcher interface {
	Driver

	// Launches reports whether launching works on this machine. If not, the methods below fail with
	// [fault.Precondition].
	Launches() bool

	// Launch starts a command as Exec does, and returns when it runs. Its output is recorded. Of a large output the
	// beginning and the end are kept, up to limits of the driver, unless cmd is Complete. id identifies the command in
	// the box: [a-z0-9-], at most 64 characters. Launching an id again does nothing until it is forgotten, even after
	// its command has ended. A command that does not exist or is not executable has ended, with the exit code that Exec
	// returns. If Launch fails, nothing has run. Stdin, Stdout, Stderr and Timeout must be zero.
	Launch(ctx context.Context, ref, id string, cmd Command) error

	// Input opens the standard input of a command that this driver launched with Input, for writing. With another
	// driver, or after the command has ended, the error is a [fault.Precondition]. Write waits until the command reads,
	// and fails if it will read no more. Close ends the input. Without Close the command sees no end, even if the
	// server is killed.
	Input(ctx context.Context, ref, id string) (io.WriteCloser, error)

	// Release reports that the record of a Complete command is not needed before a position, which is a Record.Next, so
	// that the command can write more. Releasing an unknown command succeeds.
	Release(ctx context.Context, ref, id string, position int64) error

	// Extend lets the record of a Complete command grow to size bytes before the command waits. Calls that do not raise
	// the limit, or that come after a part of the record was released beyond it, do nothing. Extending an unknown
	// command succeeds.
	Extend(ctx context.Context, ref, id string, size int64) error

	// Follow calls to with the record of a launched command from a position on, and with new records as they come,
	// until a [RecordExit] was delivered, to fails, or ctx ends, with that error. Position 0 is the beginning; other
	// positions are values of Record.Next. If the box ended while the command ran, the exit code is 137. A command that
	// was not launched, or was forgotten, is a [fault.NotFound].
	Follow(ctx context.Context, ref, id string, from int64, to func(Record) error) error

	// Interrupt sends SIGINT to a launched command and its process group, as Ctrl-C does in a terminal. Interrupting a
	// command that has ended succeeds.
	Interrupt(ctx context.Context, ref, id string) error

	// End ends a launched command and everything it started. It sends SIGTERM, and kills what is left after the
	// patience; without patience it kills at once. It returns when they have ended. Ending a command that has ended
	// kills what it left, as far as the driver can tell what that is, and succeeds.
	End(ctx context.Context, ref, id string, patience time.Duration) error

	// Forget deletes the record of a launched command. It does not end the command. Forgetting an unknown command
	// succeeds, so that it can be repeated.
	Forget(ctx context.Context, ref, id string) error
}

// Terminals is a [Launcher] whose commands can have a terminal.
type Terminals interface {
	Launcher

	// Resize changes the size of the terminal of a launched command, which its programs are told. The driver need not have
	// launched it. After the command has ended, and without a terminal, the error is a [fault.Precondition].
	Resize(ctx context.Context, ref, id string, size TerminalSize) error

	// HangUp sends SIGHUP to a launched command and its process group, as when the connection to a terminal is lost. A
	// program that ignores it continues. Hanging up on a command that has ended succeeds.
	HangUp(ctx context.Context, ref, id string) error
}

// RecordSize is how many bytes of a record are kept in any case. It is limited, because a record is on the server's disk
// instead of the box's.
const RecordSize = 16 << 20

// Record is a piece of the record of a launched command.
type Record struct {
	Next int64     // the position after it
	Time time.Time // when it was recorded
	Kind RecordKind
	// Data is what the command wrote. It is valid only during the call that delivers it.
	Data []byte
	// ExitCode and OutOfMemory are set for RecordExit, with the meaning that they have in [Result].
	ExitCode    int
	OutOfMemory bool
	// BoxEnded is set for RecordExit if the box ended while the command ran.
	BoxEnded bool
	// Dropped is set for RecordGap: the number of output bytes that are missing here.
	Dropped int64
}

// RecordKind is the kind of a Record.
type RecordKind string

// The kinds of records. RecordStart is the first one of a command that began. RecordStdout includes what a Merged
// command writes to its standard error. Nothing follows RecordExit, although background processes of the command may
// continue.
const (
	RecordStart  RecordKind = "start"
	RecordStdout RecordKind = "stdout"
	RecordStderr RecordKind = "stderr"
	RecordGap    RecordKind = "gap"
	RecordExit   RecordKind = "exit"
)

// Spec describes the box to create.
type Spec struct {
	// ID is the sandbox's id: [a-z0-9-], at most 40 characters.
	ID     string
	Labels Labels
	// Image names the root file system in the provider's terms (an OCI reference for local). If it is empty, the
	// driver's own base is used.
	Image  string
	Limits Limits
	// Egress says what the box may reach. A driver that is not [Gated] cannot keep to it.
	Egress egress.Policy
}

// Labels say to whom a box belongs, so that it can be found. At the provider they are called arbe.installation,
// arbe.house, arbe.thread and arbe.environment. Installations (databases) that share a provider's account see each
// other's boxes; the first label keeps each from deleting those of another.
type Labels struct{ Installation, House, Thread, Environment string }

// Match reports whether labels have every field that want sets.
func (l Labels) Match(want Labels) bool {
	matches := func(want, have string) bool { return want == "" || want == have }
	return matches(want.Installation, l.Installation) && matches(want.House, l.House) &&
		matches(want.Thread, l.Thread) && matches(want.Environment, l.Environment)
}

// Limits restrict what a box may use. A zero field means the driver's default.
type Limits struct {
	MemoryMB int     `json:"memory_mb,omitempty"` // memory of all its processes together, in MiB
	DiskMB   int     `json:"disk_mb,omitempty"`   // all it may write, in MiB
	PIDs     int     `json:"pids,omitempty"`      // processes and threads at once
	CPUs     float64 `json:"cpus,omitempty"`      // cores
	// Idle is after how long without a command the box is stopped, as far as the driver stops boxes.
	Idle time.Duration `json:"idle,omitempty"`
}

// The user and the paths in every box, whatever its driver.
const (
	// Workspace is the working tree and the directory in which commands start.
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
	// Env is added to the box's own small environment (PATH, HOME, USER, LANG, TERM). Values reach the command's
	// environment only, never an argument list or a file, because they may be secrets.
	Env map[string]string
	// Stdin is what it reads; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr receive its output as it comes, from one goroutine each; nil drops it. A writer that fails
	// stops receiving and does not stop the command.
	Stdout, Stderr io.Writer
	// Merged makes standard output and error one pipe, as a shell's 2>&1 does: Stdout receives both in the order in
	// which they were written, and Stderr must be nil. Two pipes do not keep that order.
	Merged bool
	// Complete is for Launch: no output is dropped. When its record is longer than [RecordSize], or than Extend
	// allowed, the command waits as long as more than some MiB of it are not released; see [Launcher].
	Complete bool
	// Input is for Launch: the standard input is what is written to [Launcher].Input. Otherwise it is empty.
	Input bool
	// Terminal is for Launch by [Terminals]: the command gets a pseudo-terminal as its standard input, output and error,
	// which controls its session, so that Ctrl-C written to its input interrupts the job in the foreground. Input and Merged
	// must be set. The input's end does not end the terminal, and any driver may open it, also one that is opened later over
	// the same boxes. Defaults to none.
	Terminal *Terminal
	// Timeout limits the command; zero means no limit.
	Timeout time.Duration
}

// Terminal describes the terminal of a command.
type Terminal struct {
	TerminalSize
	// Kind is what TERM says. Defaults to the box's.
	Kind string
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Rows, Columns uint16 }

// Result is how a command ended.
type Result struct {
	ExitCode int
	Duration time.Duration
	// TimedOut: Command.Timeout passed; ExitCode is 124.
	TimedOut bool
	// OutOfMemory: the box's memory limit killed the command or a process that it started, as far as the driver can
	// tell.
	OutOfMemory bool
}

// Box is a box in a provider's list.
type Box struct {
	Ref    string
	ID     string
	Labels Labels
	// CreatedAt is when the provider says it was made.
	CreatedAt time.Time
	// Quarantined is set while the box is in quarantine.
	Quarantined bool
}

// Liveness is a provider's answer about a box.
type Liveness string

// The three answers. Unknown changes nothing, so that a network failure never makes an existing box count as dead.
const (
	Live    Liveness = "live"
	Gone    Liveness = "gone"
	Unknown Liveness = "unknown"
)

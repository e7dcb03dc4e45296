// Package sandbox gives a thread its sandbox. It resolves the right one (live: use it; dead: replace it; none: create
// one), runs commands in it, and knows which sandboxes may be deleted.
//
// A box is created by a [Driver] at a provider, for a sandbox. Drivers are leaf packages below this one, and nothing
// above this package names one. The test suite for drivers is in sandboxtest.
//
// Each type here uses only those before it. [Account] describes how houses bring their own keys to a provider.
// [Recipe] describes how a box is built, and [Maxima] the operator's limits. [Environments] stores recipes.
// [Machines] tracks which machines are up. [Sandboxes] stores the records of boxes. trees saves their files. builds
// builds the box of a record, with the saved files of the box that it replaces. [Reaper] destroys boxes. [Resolver]
// finds the sandbox of a thread.
package sandbox

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Driver creates and uses boxes at one provider. A box is one machine with one working tree.
//
// Methods are safe for concurrent use, also for one box. A ref comes from Create. If its box is gone, every
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

	// List returns the boxes whose labels match want. An empty field of want matches everything.
	List(ctx context.Context, want Labels) ([]Box, error)

	// Close ends everything that must not outlive this server and releases the driver. For a local driver that is all
	// that runs in its boxes, except launched commands; the files stay for the next start. No method may be called
	// after Close.
	Close(ctx context.Context) error
}

// Bound is a [Driver] whose boxes may be bound to one machine, where no other driver reaches them.
type Bound interface {
	Driver

	// Machine returns the durable identity of the machine; empty if every server reaches the boxes.
	Machine() string
}

// Gated is a [Driver] whose boxes reach only what their policies allow.
type Gated interface {
	Driver

	// SetEgress replaces the policy of a box. The policy applies to new connections, and ends existing ones that it
	// does not allow. SetEgress does nothing if the box already has this policy.
	SetEgress(ctx context.Context, ref string, p egress.Policy) error

	// OnRefusal makes the driver call f with refused connections of boxes, from any goroutine. The driver drops some
	// if there are many in a second.
	OnRefusal(f func(Refusal))
}

// Dialer is a [Driver] that reaches the TCP ports of programs in its boxes. It states [Guarantees].Ports.
type Dialer interface {
	Driver

	// Asleep reports whether a box is not running, so that the programs in it have ended. It starts nothing.
	Asleep(ctx context.Context, ref string) (bool, error)

	// Dial connects to a port on the box's own loopback, over IPv4, or else IPv6. It may start a stopped box. If
	// nothing accepts the connection, the error is [ErrNobodyListens]. ctx limits only the connecting. The connection
	// lasts until either side or the box ends it. It reaches only programs of the box. On the ports on which the
	// server itself listens inside the box, the error is [ErrNobodyListens] too.
	Dial(ctx context.Context, ref string, port uint16) (Conn, error)
}

// Conn is a connection to a port of a box. It need not support deadlines.
type Conn interface {
	net.Conn
	// CloseWrite ends this direction. The other one stays open.
	CloseWrite() error
}

// ErrNobodyListens is the error of [Dialer].Dial for a port on which no program of the box listens.
var ErrNobodyListens = fault.New(fault.Unavailable, "nothing listens on this port in the sandbox", "start the program that does, and try again").WithReason(fault.NobodyListens)

// Doored is a [Driver] that connects its boxes to this server's doors itself.
type Doored interface {
	Driver

	// Door returns the origin at which programs in every box reach the server's doors, whatever the box's policy,
	// such as http://arbe.internal. It is empty if they cannot reach them.
	Door() string
}

// Relaying is a [Driver] that carries connections of boxes whose network does not reach the server to its doors, over
// the way on which it runs their commands.
type Relaying interface {
	Driver

	// OnDoor makes the driver pass connections of boxes to take, from any goroutine, with those labels of the box that
	// nobody but this server can choose. take closes them. Without OnDoor, the driver carries none.
	OnDoor(take func(conn net.Conn, from Labels))

	// Relay returns the origin at which programs in a box reach the server's doors, whatever the box's policy, such as
	// http://127.19.0.1:7179. It is empty if the driver does not carry the box's connections: the box reaches the
	// server at its public address. The door is open while a command of the box runs, at least.
	Relay(ctx context.Context, ref string) (origin string, err error)
}

// Resting is a [Driver] whose provider may pause or stop a box that nobody uses from outside, although processes run in it.
type Resting interface {
	Driver

	// KeepAwake makes the provider keep a box running for a time from now on. It may start a stopped box. A later call
	// replaces an earlier one; with zero, the provider decides again.
	KeepAwake(ctx context.Context, ref string, least time.Duration) error
}

// Offline is a [Driver] whose boxes may be unable to reach a network.
type Offline interface {
	Driver

	// Offline reports whether boxes have no network other than their own loopback.
	Offline() bool
}

// Imaged is a [Driver] that fetches the images of its boxes itself.
type Imaged interface {
	Driver

	// Pull fetches an image, so that creating a box from it needs no other host. It does not fetch an image again.
	Pull(ctx context.Context, image string) error
}

// Stating is a [Driver] that states the guarantees of its boxes. Other drivers guarantee nothing.
type Stating interface {
	Driver

	// Guarantees returns what every box guarantees. It does not change.
	Guarantees() Guarantees
}

// Guarantees are a driver's statements about its boxes. A false field means that nobody may rely on the property,
// even if the provider happens to have it.
type Guarantees struct {
	// MemoryLimit means that Limits.MemoryMB, PIDs and CPUs are enforced.
	MemoryLimit bool
	// DiskLimit means that Limits.DiskMB is enforced.
	DiskLimit bool
	// KillsAll means that a time-out or cancellation ends everything that the command started, however it hides.
	KillsAll bool
	// NoNetwork means that a box has only its own loopback, unless its policy allows a network.
	NoNetwork bool
	// OwnKernel means that a box has its own kernel, so it neither shows nor reaches anything of its machine.
	OwnKernel bool
	// OwnShare means that a box cannot use up limited resources of its machine, such as pseudo-terminals.
	OwnShare bool
	// OutlastsLeftovers means that a box runs its next commands whatever earlier ones left in the background.
	OutlastsLeftovers bool
	// SecretsSeparate means that no command can read the environment or memory of another one that was given an
	// environment.
	SecretsSeparate bool
	// Images means that Spec.Image may name an OCI image.
	Images bool
	// SecretFiles means that commands can receive files in [SecretFolder]; see [Command].Secrets.
	SecretFiles bool
	// Ports means that the driver is a [Dialer] that reaches every program that listens on the loopback of a box.
	Ports bool
	// Layers means that the driver is [Layered].
	Layers bool
	// StopsIdle means that the provider may stop a box without commands, which ends its background processes.
	StopsIdle bool
	// UserID is the user id of commands inside; negative if the image decides.
	UserID int
}

// Layered is a [Driver] that keeps the files of prepared boxes as layers. Other boxes can begin with them. It states
// [Guarantees].Layers. A layer belongs to the house and the environment in the labels of its box, and no box with
// other ones ever gets it. The driver may drop any layer at any time, for example if space is short.
type Layered interface {
	Driver

	// KeepLayer keeps the files of a box under a key, with a note of some KiB. It ends the processes of the box,
	// whose next use starts it again. An existing layer stays as it is. If there is no room for another layer, the
	// error is a [fault.Exhausted], and the box is not affected.
	KeepLayer(ctx context.Context, ref, key string, note []byte) error

	// TakeLayer replaces the files of a new box with those of a layer, and returns the layer. A layer that does not
	// exist or is too old is a [fault.NotFound]. After any error, the box is unchanged.
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
	// Size is the disk space that it uses, in bytes.
	Size int64
	// Old means that TakeLayer does not use it any more.
	Old bool `json:"-"`
}

// Measured is a [Bound] driver that measures the disk space of its boxes and layers.
type Measured interface {
	Bound

	// Occupied returns the used space by house. It must be quick.
	Occupied(ctx context.Context) (map[string]Occupied, error)
}

// Occupied is the disk space that a house uses on a machine, in bytes.
type Occupied struct {
	// Boxes is the space of boxes, by [Spec].ID.
	Boxes map[string]int64
	// Layers is the space of all layers together.
	Layers int64
	// Most is the house's limit; 0 for no limit.
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
	// returns. If Launch fails, nothing has run, unless ctx ended: then the command may run. Stdin, Stdout, Stderr and
	// Timeout must be zero.
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

	// End ends a launched command and everything it started. It sends SIGTERM, and kills the rest after the
	// patience; without patience it kills at once. It returns when they have ended. Ending a command that has ended
	// kills its leftovers, as far as the driver can find them, and succeeds.
	End(ctx context.Context, ref, id string, patience time.Duration) error

	// Forget deletes the record of a launched command. It does not end the command. Forgetting an unknown command
	// succeeds, so that it can be repeated.
	Forget(ctx context.Context, ref, id string) error
}

// Terminals is a [Launcher] whose commands can have a terminal.
type Terminals interface {
	Launcher

	// Resize changes the size of the terminal of a launched command, and signals its programs. The driver need not
	// have launched it. After the command has ended, and without a terminal, the error is a [fault.Precondition].
	Resize(ctx context.Context, ref, id string, size TerminalSize) error

	// HangUp sends SIGHUP to a launched command and its process group, as when the connection to a terminal is lost. A
	// program that ignores it continues. Hanging up on a command that has ended succeeds.
	HangUp(ctx context.Context, ref, id string) error
}

// RecordSize is how many bytes of a record are always kept. It is limited, because the record is on the server's
// disk, not the box's.
const RecordSize = 16 << 20

// Record is a piece of the record of a launched command.
type Record struct {
	Next int64     // the position after it
	Time time.Time // when it was recorded
	Kind RecordKind
	// Data is output of the command. It is valid only during the call that delivers it.
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
	// Egress says which hosts the box may reach. A driver that is not [Gated] cannot enforce it.
	Egress egress.Policy
	// Door is the server's public address, such as https://arbe.example.com. If a driver limits the hosts of boxes, its
	// boxes reach the host of Door with every policy. It is empty if there is none. A [Doored] driver does not use it,
	// nor does a [Relaying] one for boxes whose connections it carries.
	Door string
}

// Labels say who owns a box, so that it can be found. At the provider they are called arbe.installation, arbe.house,
// arbe.thread and arbe.environment. Installations (databases) that share a provider's account see each other's boxes;
// the first label keeps each from deleting those of another.
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
	// Idle is how long the box may be without a command before the driver stops it, if it stops boxes.
	Idle time.Duration `json:"idle,omitempty"`
}

// The user and the paths in every box, whatever its driver.
const (
	// Workspace is the working tree and the directory in which commands start.
	Workspace = "/workspace"
	// Home is the box user's home directory.
	Home = "/home/agent"
	// SecretFolder holds the files of [Command].Secrets. It is in memory.
	SecretFolder = secret.Folder
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
	// Secrets are the contents of files in [SecretFolder], by their names. They are there as long as commands that
	// receive them run, readable only by the box's user, and nowhere else. The driver must guarantee SecretFiles.
	// Otherwise the error is a [fault.Precondition].
	Secrets map[string]string
	// Stdin is its input; nil is an empty input.
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
	// Input is for Launch: [Launcher].Input writes the standard input. Otherwise it is empty.
	Input bool
	// Terminal is for Launch by [Terminals]. The command gets a pseudo-terminal as its standard input, output and
	// error. It is the controlling terminal of its session, so a Ctrl-C in the input interrupts the foreground job.
	// Input and Merged must be set. Closing the input does not end the terminal. Any driver over the same boxes may
	// open it, even one that is opened later. Defaults to none.
	Terminal *Terminal
	// Timeout limits the command; zero means no limit.
	Timeout time.Duration
}

// Terminal describes the terminal of a command.
type Terminal struct {
	TerminalSize
	// Kind is the value of TERM. Defaults to the box's.
	Kind string
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Rows, Columns uint16 }

// Result is how a command ended.
type Result struct {
	ExitCode int
	Duration time.Duration
	// TimedOut means that Command.Timeout passed; ExitCode is 124.
	TimedOut bool
	// OutOfMemory means that the box's memory limit killed the command or a process that it started, as far as the
	// driver can tell.
	OutOfMemory bool
}

// Box is a box in a provider's list.
type Box struct {
	Ref    string
	ID     string
	Labels Labels
	// CreatedAt is its creation time, according to the provider.
	CreatedAt time.Time
	// Quarantined is set while the box is in quarantine.
	Quarantined bool
	// Meter is that of [Metered].
	Meter Meter
}

// Liveness is a provider's answer about a box.
type Liveness string

// The three answers. Unknown changes nothing, so that a network failure never makes an existing box count as dead.
const (
	Live    Liveness = "live"
	Gone    Liveness = "gone"
	Unknown Liveness = "unknown"
)

// Refusal is a connection of a box that its policy does not allow.
type Refusal struct {
	egress.Refusal
	// Ref is the box.
	Ref string
	// Launch is the id of the launched command whose process it is; empty if that is not known. Program is the name of
	// the process. The box chooses it, so it can be anything.
	Launch, Program string
}

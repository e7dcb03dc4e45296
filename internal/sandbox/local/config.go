package local

import (
	"log/slog"
	"net"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Config configures a [Driver].
type Config struct {
	// Dir holds the boxes' records and files. Only one driver at a time can use it. Required.
	Dir string
	// RunDir holds what must not survive a reboot. For root every user must be able to pass through it. Defaults to
	// /run/arbe for root, and to Dir/run otherwise.
	RunDir string
	// Runtime is the name or path of the OCI runtime: runc, another runtime with runc's command line whose containers
	// are processes of this machine (crun, youki), or gVisor's runsc. Defaults to runc.
	Runtime string
	// Limits replace zero fields of [sandbox.Spec.Limits].
	// Zero fields default to those of [DefaultLimits].
	Limits sandbox.Limits
	// Total limits what all boxes together may use, if Capabilities.MemoryLimit is true; DiskMB has no effect. No box
	// gets more cores. Zero fields default to those of [MachineTotal].
	Total sandbox.Limits
	// ReadOnly are further host directories that boxes without an image see read-only, such as /opt/toolchain. Defaults
	// to none.
	ReadOnly []string
	// Running is how many boxes may run at once. To start another one, the box that has been idle longest is stopped.
	// Defaults to 64.
	Running int
	// IdleStop is the time without a command after which a box is stopped in which nothing runs. Its files stay, and
	// its next use starts it again. Defaults to 30 minutes.
	IdleStop time.Duration
	// BackgroundStop is the time without a command after which a box is stopped in which commands left something
	// running, such as a server. Defaults to 12 hours.
	BackgroundStop time.Duration
	// Images restricts the images of boxes.
	Images Images
	// Layers limit the cached environments.
	Layers Layers
	// HouseMB is how much space the boxes and layers of one house may use, in MiB. A house that uses more gets no further box, and the
	// disks of its boxes are full. Defaults to 102400.
	HouseMB int
	// FreeMB is how much space on the data directory's disk, in MiB, boxes and images must leave free. If less would be
	// left, none is created. Defaults to 2048.
	FreeMB int
	// Grace is how long a box outlives its server while something runs in it: long enough to restart or upgrade the
	// server, which then continues to use the box. gVisor's boxes always end with their server. Defaults to 0:
	// everything ends with the server.
	Grace time.Duration
	// PrivateHosts are hosts, or host:port, that boxes may reach at private addresses if their policies allow them, such as
	// a mirror of packages in the operator's network. Defaults to none.
	PrivateHosts []string
	// Dial connects boxes to hosts that their policies allow. It must not connect to other addresses than public ones.
	// Defaults to [outbound.Dialer] with PrivateHosts, through the proxy that the environment names (HTTPS_PROXY).
	Dial egress.Dialer
	// Door is given the connections with which programs in a box with these labels ask for the server's own doors, at
	// [egress.DoorOrigin], and closes them. Defaults to nil: no box reaches the server.
	Door func(conn net.Conn, from sandbox.Labels)
	// Log logs what belongs to no request, such as the removal of leftovers. Defaults to slog.Default().
	Log *slog.Logger
}

// DefaultLimits are the limits of a box whose recipe has none.
var DefaultLimits = sandbox.Limits{MemoryMB: 4096, DiskMB: 10240, PIDs: 1024, CPUs: 2}

// Images restricts which images boxes may use. A registry is written as host or host:port.
type Images struct {
	// Registries are the registries that images may come from. Defaults to all.
	Registries []string
	// PrivateRegistries are registries that may have private addresses, such as one in the operator's network. They
	// need not be in Registries too. Defaults to none.
	PrivateRegistries []string
	// Credentials are the registries that get the server's own credentials, those of docker login. Every member may
	// then use whatever these open. Defaults to none.
	Credentials []string
	// SpaceMB is how much space all unpacked images together may use, in MiB. The least recently used images that no
	// box uses are removed. Defaults to 65536.
	SpaceMB int
}

// Layers limit the copies of the files of prepared boxes. The least recently used ones are removed.
type Layers struct {
	// SpaceMB is how much space all of them together may use, in MiB, and HouseMB those of one house. Default to 20480 and 8192.
	SpaceMB, HouseMB int
	// Age is how long one is used after it was made. Defaults to a week.
	Age time.Duration
}

// Capabilities are the limits that the driver can enforce on this machine and as this user. What is false is not
// enforced, or only by a weaker substitute.
type Capabilities struct {
	// MemoryLimit: control groups limit memory, processes and cores per box. Substitute: a limit on the number of
	// processes.
	MemoryLimit bool
	// DiskLimit: a box has a disk of its own size. What it can write at a moment is held on the machine's disk.
	// Substitute: a limit on the size of one file; boxes can then fill the machine's disk.
	DiskLimit bool
	// KillsAll: a time-out or cancellation kills everything that the command started, however it hides. Substitute: the
	// command's descendants and its session.
	KillsAll bool
	// OwnKernel: a box uses not the machine's kernel but its own (gVisor), which limits what it can reach. Its memory
	// and cores are limited from outside: a box that uses up its memory ends, and MemoryLimit is false.
	OwnKernel bool
	// SecretsSeparate: no command can read the memory and environment of another that was given its own environment.
	// This needs Landlock (Linux 5.19), which gVisor does not have.
	SecretsSeparate bool
	// Network: boxes reach the hosts that their policies allow, the server's doors, and nothing else. It needs nf_tables,
	// which gVisor does not have. Substitute: boxes have no network but their own loopback, and no way to the doors.
	Network bool
	// Layers: the disks of prepared boxes are kept for others, which needs idmapped mounts (Linux 5.12) and DiskLimit.
	Layers bool
	// OwnIDs: no two boxes share a user id on the host.
	OwnIDs bool
	// UserID is the user id of commands inside a box: 1000, or 0 (without capabilities) if the server is not root.
	UserID int
}

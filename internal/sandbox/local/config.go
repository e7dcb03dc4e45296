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
	// RunDir holds files that must not survive a reboot. If the server is root, every user must be able to pass through
	// it. Defaults to /run/arbe for root, and to Dir/run otherwise.
	RunDir string
	// Runtime is the name or path of the OCI runtime: runc, another runtime with runc's command line whose containers
	// are processes of this machine (crun, youki), or gVisor's runsc. Defaults to runc.
	Runtime string
	// Limits are the defaults for zero fields of [sandbox.Spec.Limits]. Their own zero fields default to those of
	// [DefaultLimits].
	Limits sandbox.Limits
	// Total limits the resources of all boxes together, if Capabilities.MemoryLimit is true. A box never gets more
	// cores than this. DiskMB has no effect. Zero fields default to those of [MachineTotal].
	Total sandbox.Limits
	// ReadOnly are further host directories that boxes without an image see read-only, such as /opt/toolchain. Defaults
	// to none.
	ReadOnly []string
	// Running is the number of boxes that may run at once. To start another one, the driver stops the box that has been
	// idle longest. Defaults to 64.
	Running int
	// IdleStop is the time without a command after which a box is stopped if nothing runs in it. Its files stay, and
	// its next use starts it again. Defaults to 30 minutes.
	IdleStop time.Duration
	// BackgroundStop is the time without a command after which a box is stopped even if background processes run in it,
	// such as a server. Defaults to 12 hours.
	BackgroundStop time.Duration
	// Images restricts the images of boxes.
	Images Images
	// Layers limits the cached environments.
	Layers Layers
	// HouseMB is the space that the boxes and layers of one house may use, in MiB. A house that uses more gets no
	// further box, and the disks of its boxes are full. Defaults to 102400.
	HouseMB int
	// FreeMB is the space on the data directory's disk that boxes and images must leave free, in MiB. None is created
	// if less would be left. Defaults to 2048.
	FreeMB int
	// Grace is how long a box outlives its server while something runs in it. It should be long enough to restart or
	// upgrade the server, which then continues to use the box. gVisor's boxes always end with their server. Defaults to
	// 0: everything ends with the server.
	Grace time.Duration
	// PrivateHosts are hosts, or host:port, that boxes may reach at private addresses if their policies allow them,
	// such as a mirror of packages in the operator's network. Defaults to none.
	PrivateHosts []string
	// Dial connects boxes to hosts that their policies allow. It must not connect to addresses that are not public.
	// Defaults to [outbound.Dialer] with PrivateHosts, through the proxy that the environment names (HTTPS_PROXY).
	Dial egress.Dialer
	// Door handles and closes a connection from a program in a box with these labels to the server's own doors, at
	// [egress.DoorOrigin]. Defaults to nil: no box reaches the server.
	Door func(conn net.Conn, from sandbox.Labels)
	// Log receives messages that belong to no request, such as the removal of leftovers. Defaults to slog.Default().
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
	// Credentials are the registries that get the server's own credentials, from docker login. Every member can then
	// use all images that these credentials open. Defaults to none.
	Credentials []string
	// SpaceMB is the space that all unpacked images together may use, in MiB. The least recently used images that no
	// box uses are removed. Defaults to 65536.
	SpaceMB int
}

// Layers limits the cached environments. The least recently used ones are removed.
type Layers struct {
	// SpaceMB is the space that all layers together may use, in MiB, and HouseMB that for the layers of one house. They
	// default to 20480 and 8192.
	SpaceMB, HouseMB int
	// Age is how long a layer can be used after it was made. Defaults to a week.
	Age time.Duration
}

// Capabilities are the limits that the driver can enforce on this machine and as this user. A false one is not
// enforced, or only by a weaker substitute.
type Capabilities struct {
	// MemoryLimit: control groups limit memory, processes and cores per box. Substitute: a limit on the number of
	// processes.
	MemoryLimit bool
	// DiskLimit: a box has a disk of its own size. The machine's disk holds the space that the box can write next.
	// Substitute: a limit on the size of one file; boxes can then fill the machine's disk.
	DiskLimit bool
	// KillsAll: a timeout or cancellation kills everything that the command started, even if it hides. Substitute: the
	// command's descendants and its session.
	KillsAll bool
	// OwnKernel: a box uses its own kernel (gVisor) instead of the machine's, which limits what it can reach. Its
	// memory and cores are limited from outside: a box that uses up its memory ends, and MemoryLimit is false.
	OwnKernel bool
	// SecretsSeparate: no command can read the memory and environment of another command that has its own environment.
	// This needs Landlock (Linux 5.19), which gVisor does not have.
	SecretsSeparate bool
	// Network: boxes reach the hosts that their policies allow, the server's doors, and nothing else. It needs
	// nf_tables, which gVisor does not have. Substitute: boxes have only their own loopback network, and cannot reach
	// the doors.
	Network bool
	// Layers: the disks of prepared boxes are kept for other boxes. This needs idmapped mounts (Linux 5.12) and
	// DiskLimit.
	Layers bool
	// OwnIDs: no two boxes share a user id on the host.
	OwnIDs bool
	// UserID is the user id of commands inside a box: 1000, or 0 (without capabilities) if the server is not root.
	UserID int
}

package local

import (
	"log/slog"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Config says where boxes live and what they are made with.
type Config struct {
	// Dir holds the boxes' records and files. One driver at a time may use it. Required.
	Dir string
	// RunDir holds what must not outlive a reboot; as root it must be passable for every user.
	// Defaults to /run/arbe as root, and to Dir/run otherwise.
	RunDir string
	// Runtime is the OCI runtime, by name or path: runc, another with runc's command line whose
	// containers are processes of this machine (crun, youki), or gVisor's runsc. Defaults to runc.
	Runtime string
	// Limits replace zero fields of [sandbox.Spec.Limits].
	// Defaults to 4096 MiB of memory, 10240 MiB of disk, 1024 processes and 2 cores.
	Limits sandbox.Limits
	// ReadOnly are further host directories that boxes without an image see read-only, such as
	// /opt/toolchain. Defaults to none.
	ReadOnly []string
	// Log receives what is nobody's request, such as leftovers that were swept. Defaults to slog.Default().
	Log *slog.Logger
}

// Capabilities are what this machine and user let the driver hold a box to. What is false is not
// enforced, or only by a weaker substitute.
type Capabilities struct {
	// MemoryLimit: memory, processes and cores are limited per box, by control groups. Substitute:
	// a limit on the number of processes.
	MemoryLimit bool
	// DiskLimit: a box has a disk of its own size. Substitute: a limit on the size of one file.
	DiskLimit bool
	// KillsAll: a time-out or a cancel kills everything the command started, however it hid.
	// Substitute: the command's descendants and its session.
	KillsAll bool
	// OwnKernel: a box does not talk to the machine's kernel but to one of its own (gVisor), and what
	// that one lets through is all it can reach. Its memory and cores are limited from outside: a box
	// that uses up its memory ends, and MemoryLimit is false.
	OwnKernel bool
	// OwnIDs: no two boxes share a user id on the host.
	OwnIDs bool
	// UserID is the id commands run as, seen from inside: 1000, or 0 (without capabilities) where the
	// server is not root.
	UserID int
}

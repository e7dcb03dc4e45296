//go:build linux

package local

import (
	"os"
	"sync"
	"sync/atomic"

	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"io"

	"context"

	"log/slog"

	"net"
	"syscall"

	"maps"
	"slices"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Driver is the [sandbox.Driver] of this machine.
type Driver struct {
	cfg Config
	installation
	// instance names cfg.Dir in the refs of its boxes.
	instance string
	start    string // names this start of the driver
	caps     Capabilities
	base     rootfs
	images   *images
	layers   *layers

	emptyDisk func() ([]block, error) // created once; see newDisk

	reserving      sync.Mutex // held while disk space is being reserved
	claiming       sync.Mutex // held while a box claims space of its house
	warnOverbooked sync.Once
	warnInotify    sync.Once
	onRefusal      atomic.Pointer[func(sandbox.Refusal)]
	changes        watcher

	endIdling func() // stops the watch for idle boxes and waits until it has ended

	mu     sync.Mutex
	boxes  map[string]*box
	slots  map[*box]bool // the boxes that run or are about to
	blocks map[uint32]bool
	closed bool
}

// fill sets the zero fields of limits to the defaults.
func fill(limits, defaults sandbox.Limits) sandbox.Limits {
	if limits.MemoryMB == 0 {
		limits.MemoryMB = defaults.MemoryMB
	}
	if limits.DiskMB == 0 {
		limits.DiskMB = defaults.DiskMB
	}
	if limits.PIDs == 0 {
		limits.PIDs = defaults.PIDs
	}
	if limits.CPUs == 0 {
		limits.CPUs = defaults.CPUs
	}
	return limits
}

// record is the part of a box that is stored and outlives the server.
type record struct {
	ID      string
	Labels  sandbox.Labels
	Limits  sandbox.Limits
	Image   string        `json:",omitempty"` // the digest of its unpacked image
	Block   uint32        `json:",omitempty"` // its block of host ids, if the server is root
	Disk    bool          // whether its files are on a disk image
	Owner   uint32        `json:",omitempty"` // the block of ids that own the files on its disk, if that is a copy of a layer; see layers.go
	Egress  egress.Policy `json:",omitzero"`  // the hosts that it may reach
	Created time.Time
}

// box is a box over its whole life.
//
// mu is held for reading while something is started in the container. It is held for writing while the container is
// started or stopped, or the box is deleted. Running commands do not hold it, because a stop would then wait for them.
type box struct {
	d *Driver
	record
	dir string

	window view

	used atomic.Int64 // when it was last used, in nanoseconds since 1970

	claimed atomic.Int64 // the space that it will take up, while a layer is copied for it; see claim

	mu          sync.RWMutex
	running     *container // nil, or dead, if the box must be started first
	quarantined bool       // dir is in the quarantine; see quarantine.go
	gone        bool
}

func (d *Driver) newBox(r record) *box {
	return &box{d: d, record: r, dir: filepath.Join(d.cfg.Dir, "boxes", r.ID)}
}

// register registers the box of an earlier server.
func (d *Driver) register(b *box) {
	d.boxes[b.ID], d.blocks[b.Block] = b, true
	if b.Image != "" {
		d.images.use(b.Image)
	}
}

// find returns the box of a ref.
func (d *Driver) find(ref string) (*box, error) {
	id, here, err := d.locate(ref)
	if err != nil {
		return nil, err
	}
	if !here {
		return nil, fault.New(fault.Unavailable, "the sandbox "+id+" is on another server's machine",
			"use a server of that machine, or wait until it is back")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, closing()
	}
	if b, ok := d.boxes[id]; ok {
		return b, nil
	}
	return nil, notFound(id)
}

func malformed(ref string) error {
	return fault.Newf(fault.Invalid, "use the reference that creating the sandbox returned", "%q is not a local sandbox's reference", ref)
}

func notFound(ref string) error {
	return fault.New(fault.NotFound, "the sandbox "+ref+" no longer exists", "run the command again: the thread gets a new sandbox")
}

// Machine returns the identity of this driver's directory.
func (d *Driver) Machine() string { return d.instance }

// ref returns the ref of a box in this directory. The ref names the directory, because servers on several machines
// share a database, and a server must not take another machine's box for a deleted one.
func (d *Driver) ref(id string) string { return d.instance + "/" + id }

// locate parses a ref. here reports whether its box is, or was, in this directory.
func (d *Driver) locate(ref string) (id string, here bool, err error) {
	instance, id, ok := strings.Cut(ref, "/")
	if !ok || instance == "" || !validID.MatchString(id) {
		return "", false, malformed(ref)
	}
	return id, instance == d.instance, nil
}

// limits returns the current limits of the box: the recorded ones, lowered to the current total for all boxes. The
// kernel refuses a group more cores than its parent has.
func (b *box) limits() sandbox.Limits {
	now, total := b.Limits, b.d.cfg.Total
	now.MemoryMB, now.PIDs, now.CPUs = min(now.MemoryMB, total.MemoryMB), min(now.PIDs, total.PIDs), min(now.CPUs, total.CPUs)
	return now
}

// diskImage returns the file with the box's disk.
func (b *box) diskImage() string {
	if b.Owner != 0 {
		return filepath.Join(b.dir, "layer.ext4")
	}
	return filepath.Join(b.dir, "disk.ext4")
}

// diskOwner returns the block of ids that own the files on the box's disk.
func (b *box) diskOwner() uint32 { return cmp.Or(b.Owner, b.Block) }

// save writes the record durably. From then on the box exists.
func (b *box) save() error {
	text, err := json.Marshal(b.record)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(b.dir, "box.json"), text)
}

// writeDurably writes a file atomically and durably.
func writeDurably(name string, text []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// leave unregisters a box. Callers hold b.mu. If files of it remain, its user ids stay reserved, because another box
// with these ids would own the files.
func (b *box) leave(clean bool) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	delete(b.d.boxes, b.ID)
	if clean {
		delete(b.d.blocks, b.Block)
	}
	if b.Image != "" {
		b.d.images.release(b.Image)
	}
}

// container is a running box.
type container struct {
	bundle
	*child                 // process 1
	lifeline io.Closer     // process 1 lives while the server holds this, and for a configurable time after
	root     *os.File      // the box's /, as the box sees it
	gate     *egress.Gate  // connects it to the network; nil if it has none
	door     *door         // the socket of process 1; nil if the box has its own kernel
	refusals perSecond     // counts the refused connections that were reported
	limited  chan struct{} // closed when the inotify limit is set, for which the first command waits; nil if the container was adopted

	commands commands
	dropping dropping
	secrets  secretFiles
}

// quarantine is the directory of quarantined boxes.
func (d *Driver) quarantine() string { return filepath.Join(d.cfg.Dir, "quarantine") }

func closing() error {
	return fault.New(fault.Unavailable, "the server is shutting down", "try again in a moment")
}

var validID = lazyregexp.New(`^[a-z0-9-]{1,40}$`)

// readRecord reads the record in a box's directory.
func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "box.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if !errors.Is(err, os.ErrNotExist) && (err != nil || r.ID != filepath.Base(dir)) {
		err = fault.New(fault.Precondition, "the sandbox record "+filepath.Join(dir, "box.json")+" cannot be read",
			"restore it from a backup, or remove "+dir+" to give the sandbox up").Because(err)
	}
	return r, err
}

// readable returns an error that a person may see: err itself if it is meant for people, otherwise message with err as
// the cause for the log.
func readable(ctx context.Context, err error, message string) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if full := diskFull(err); full != nil {
		return full
	}
	return fault.New(fault.Unavailable, message, "try again; the server's log has the cause").Because(err)
}

// perSecond counts events in the current second. It is safe for concurrent use.
type perSecond struct{ second, n atomic.Int64 }

// take counts an event. It reports whether this second has had no more than most events.
func (p *perSecond) take(most int64) bool {
	if now := time.Now().Unix(); p.second.Swap(now) != now {
		p.n.Store(0)
	}
	return p.n.Add(1) <= most
}

// view is the server's watch over a box's window. It is safe for concurrent use.
type view struct {
	mu       sync.Mutex
	files    string // where the disk is mounted; empty if there is nothing to widen
	busy     bool
	resting  time.Time // the window is not widened before this time
	widened  time.Time
	lastStep int64
}

// layers holds copies of the disks of prepared boxes. Other boxes of the same house and environment start from them. A
// layer is never mounted and never changes. It can be removed at any time, because a box gets its own copy of it. A
// layer may contain secrets of the house, because setup scripts receive secrets.
//
// The least recently used layers are removed when there are too many, when they are too large together, or when the
// machine's disk is short of space.
//
//	<dir>/<name>/disk.ext4       the disk
//	<dir>/<name>/layer.json      its description; the modification time is the layer's last use
//	<dir>/making-…, removing-…   incomplete layers
type layers struct {
	dir    string
	limits Layers
	// room reports whether the disk of dir has space for size more bytes, besides the space that must stay free.
	room func(size int64) bool
	log  *slog.Logger

	mu sync.Mutex // guards the names in dir; not held while a layer is copied
}

// commands are the commands of one container.
type commands struct {
	mu      sync.Mutex
	waited  map[command]bool     // someone waits for their end, or this server or a later one will
	leaving map[*supervised]bool // nobody waits, and their control groups may still have processes

	guarded, tidied atomic.Int64 // when guards last did this for all of them, in nanoseconds since 1970
}

// door is a container's directory with the socket of its process 1.
type door struct {
	mu  sync.RWMutex
	dir *os.File // nil if it is closed
}

// supervised is a command that process 1 of its box has started.
type supervised struct {
	c       *container
	cgroups cgroups
	conn    *net.UnixConn
	control *os.File // our end of its control socket until it runs
	pid     int      // on this machine
	started uint64   // when the process started, if recorded, because pids are reused
	pidfd   int      // the stub's, until it has become the command; 0 if there is none
	group   string   // its control group; empty if there are none

	secrets   []string // the files of secrets that it receives
	inherited bool     // an earlier server started it, so it may receive any of the box's secrets

	recorded bool     // it outlives its server
	launch   string   // its id, if it was launched
	input    *os.File // our end of its standard input; nil if it has none or an earlier server had it

	done      chan struct{}
	status    syscall.WaitStatus // valid after done, when reported
	reported  bool
	killedFor atomic.Bool // the server killed it
}

// block is a piece of a file.
type block struct {
	at   int64
	data []byte
}

func (b *box) touch() { b.used.Store(time.Now().UnixNano()) }

// idle returns how long the box has been unused.
func (b *box) idle() time.Duration { return time.Since(time.Unix(0, b.used.Load())) }

// busy reports whether a container must not be stopped.
func (c *container) busy() bool { return c.commands.foreground() > 0 }

// running returns the boxes that run or are about to.
func (d *Driver) running() (boxes []*box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.slots {
		boxes = append(boxes, b)
	}
	return boxes
}

// Running returns how many boxes run or are about to.
func (d *Driver) Running() int { return len(d.running()) }

// allBoxes returns the boxes, including those that are being created or deleted. Do not lock a box while holding d.mu,
// because the holder of a box's lock also locks d.mu.
func (d *Driver) allBoxes() []*box {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.boxes))
}

func (d *Driver) vacate(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.slots, b)
}

// command is a command that was started in a container.
type command interface {
	ended() <-chan struct{}
	exitCode() int // valid after ended
	kill()         // ends everything that the command started
	forget()       // releases its resources on the machine
}

func (l *commands) foreground() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waited)
}

//go:build linux

package commandtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// RealBoxes returns the driver of real sandboxes that all tests of the process share. The sandboxes that this test makes are
// destroyed when it ends. Without real sandboxes on this machine, the test is skipped.
func RealBoxes(t testing.TB) *OwnBoxes {
	t.Helper()
	needRealBoxes(t)
	shared.once.Do(shared.start)
	if shared.err != nil {
		t.Fatal(Detail(shared.err))
	}
	d := &OwnBoxes{Driver: shared.driver}
	t.Cleanup(func() {
		for _, ref := range d.refs {
			if err := d.Destroy(context.Background(), ref); err != nil && fault.CodeOf(err) != fault.NotFound {
				t.Errorf("destroying a box: %s", Detail(err))
			}
		}
	})
	return d
}

// OwnBoxes is the shared driver as seen by one test.
type OwnBoxes struct {
	*local.Driver
	mu   sync.Mutex
	refs []string // of boxes that the test created
}

// Create is [local.Driver.Create].
func (d *OwnBoxes) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	ref, err := d.Driver.Create(ctx, spec)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.refs = append(d.refs, ref)
	}
	return ref, err
}

// NewLocal returns a driver of real sandboxes with a directory of its own, for tests of servers that follow each other or are
// on different machines, and of other settings.
func NewLocal(t testing.TB, dir string, tune ...func(*local.Config)) *local.Driver {
	t.Helper()
	needRealBoxes(t)
	c := LocalConfig(dir)
	for _, f := range tune {
		f(&c)
	}
	d, err := local.New(t.Context(), c)
	if err != nil {
		t.Fatal(Detail(err))
	}
	t.Cleanup(func() {
		if err := d.Halt(context.Background()); err != nil {
			t.Errorf("closing the driver: %s", Detail(err))
		}
	})
	return d
}

// LocalConfig configures a driver of real sandboxes for tests.
func LocalConfig(dir string) local.Config {
	return local.Config{Dir: dir, Limits: sandbox.Limits{DiskMB: 256, MemoryMB: 1024}, Grace: 2 * time.Minute, Log: slog.New(slog.DiscardHandler)}
}

// shared is the driver of real sandboxes that most tests share. Starting one takes as long as a short test, because it tests
// what this machine can do.
var shared sharedDriver

type sharedDriver struct {
	once   sync.Once
	dir    string
	driver *local.Driver
	err    error
}

func (s *sharedDriver) start() {
	if s.dir, s.err = os.MkdirTemp("", "arbe-boxes-"); s.err == nil {
		s.driver, s.err = local.New(context.Background(), LocalConfig(s.dir))
	}
}

func needRealBoxes(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("real boxes need root on a machine that has no other user set up for them")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
}

// Halt ends the shared driver. Call it after the tests of a package.
func Halt() {
	if shared.driver == nil {
		return
	}
	if err := errors.Join(shared.driver.Halt(context.Background()), os.RemoveAll(shared.dir)); err != nil {
		fmt.Fprintf(os.Stderr, "closing the tests' driver: %s\n", Detail(err))
	}
}

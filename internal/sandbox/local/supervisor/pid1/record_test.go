//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

func TestARecordHasTheOutputAndTheEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.run(b.recorded("echo out; echo err >&2; exit 9", 1<<20, 0))
	if status := r.exits(); status.ExitStatus() != 9 {
		t.Errorf("the status is %#x", uint32(status))
	}
	if got := r.read(); got.kinds != "sox" || got.output != "out\nerr\n" || got.status.ExitStatus() != 9 || got.total != 8 {
		t.Errorf("the record has %v", got)
	}
}

// A background process may keep a command's outputs open and write to them.
func TestACommandEndsThoughItsOutputIsHeldOpen(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.run(b.recorded("(until test -e go; do sleep 0.05; done; head -c 1000000 /dev/zero && touch wrote) & echo begun; exit 4", 1<<20, 0))
	if status := r.exits(); status.ExitStatus() != 4 {
		t.Errorf("the status is %#x", uint32(status))
	}
	end := r.size()
	b.touch("go")
	b.until("what is left behind has written", func() bool { return b.exists("wrote") }) // it neither blocks nor gets SIGPIPE
	if got := r.read(); got.output != "begun\n" || got.total != 6 || r.size() != end {
		t.Errorf("the record has %v in %d bytes, and had %d", got, r.size(), end)
	}
}

// Without Complete, a record keeps its beginning and a moving window. Its marks give the number of missing bytes.
func TestALongRecordKeepsItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const bytes = 30 << 20
	r := b.run(b.recorded("echo begins; head -c 31457268 /dev/zero | tr '\\0' x; printf 'ends\\n'", 1<<20, 0)) // 7 + 31457268 + 5
	if status := r.exits(); status != 0 {
		t.Errorf("the status is %#x", uint32(status))
	}
	got := r.read()
	if got.total != bytes || uint64(len(got.output))+got.dropped != bytes || got.dropped == 0 || len(got.output) > 1<<20+(supervisor.Marks+2)*supervisor.MarkEvery ||
		!strings.HasPrefix(got.output, "begins\nxxx") || !strings.HasSuffix(got.output, "xxxends\n") {
		t.Errorf("the record has %v", got)
	}
	if taken := r.disk(); taken > 16<<20 {
		t.Errorf("it takes %d bytes of the disk", taken)
	}
}

// A command waits while its complete record is too far ahead of the reader, as on a full pipe.
func TestACommandWaitsForTheReaderOfACompleteRecord(t *testing.T) {
	t.Parallel()
	const line, total = "head -c 30000000 /dev/zero | tr '\\0' x; touch wrote", 30_000_000
	const limit = 1 << 20
	full := func(r *running) {
		r.b.t.Helper()
		r.b.until("the record is full", func() bool { return r.size() >= supervisor.Window })
	}
	t.Run("until that has read it", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		r := b.run(b.recorded(line, limit, supervisor.Complete))
		for read := int64(0); !b.exists("wrote"); read = r.size() {
			if ahead := r.size() - read; ahead > supervisor.Window+2*supervisor.MaxEntry {
				t.Fatalf("the record is %d bytes ahead", ahead)
			}
			r.position(supervisor.Release, read)
			time.Sleep(time.Millisecond)
		}
		if status := r.exits(); status != 0 {
			t.Errorf("the status is %#x", uint32(status))
		}
		got := r.read()
		if got.total != total || uint64(len(got.output))+got.dropped != total || got.dropped == 0 {
			t.Errorf("the record has %v", got)
		}
	})
	t.Run("or raises its limit", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		r := b.run(b.recorded(line, supervisor.Window, supervisor.Complete))
		full(r)
		if b.exists("wrote") {
			t.Error("the command did not wait")
		}
		r.position(supervisor.Extend, 64<<20)
		r.exits()
		if got := r.read(); got.total != total || len(got.output) != total || got.dropped != 0 {
			t.Errorf("the record has %v", got)
		}
	})
	t.Run("or it is killed, and what it wrote is recorded", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		r := b.run(b.recorded("exec yes", limit, supervisor.Complete))
		full(r)
		if err := unix.PidfdSendSignal(int(r.pidfd.Fd()), unix.SIGKILL, nil, 0); err != nil {
			t.Fatal(err)
		}
		if status := r.exits(); status.Signal() != unix.SIGKILL {
			t.Errorf("the status is %#x", uint32(status))
		}
		if got := r.read(); !got.exited || uint64(len(got.output)) != got.total || strings.Trim(got.output, "y\n") != "" {
			t.Errorf("the record has %v", got)
		}
	})
}

// The next server has the record, and gets the input through it.
func TestTheNextServerReachesACommandByItsRecord(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.greet(time.Minute)
	r := b.run(b.recorded("cat; exit 3", 1<<20, supervisor.Input))
	r.conn.Close()
	again := b.dial()
	b.tell(again, []byte{supervisor.Version, supervisor.Reopen}, r.record)
	_, input := b.hear(again, supervisor.Reopened)
	if _, err := input.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	b.until("the input is passed on", func() bool { return r.read().output == "hello" })
	if r.read().exited {
		t.Fatal("the end of a server ended the input")
	}
	b.tell(again, []byte{supervisor.Version, supervisor.EndInput}, r.record)
	r.isGone()
	b.until("its end is recorded", func() bool { return r.read().exited })
	if got := r.read(); got.output != "hello" || got.status.ExitStatus() != 3 {
		t.Errorf("the record has %v", got)
	}
	t.Run("but not one that has ended", func(t *testing.T) {
		b.tell(again, []byte{supervisor.Version, supervisor.Reopen}, r.record)
		if errno, _ := b.hear(again, supervisor.Failed); unix.Errno(errno) != unix.ENOENT {
			t.Errorf("it fails with %v", unix.Errno(errno))
		}
	})
}

// disk returns the number of bytes that the record uses on the disk.
func (r *running) disk() int64 {
	r.b.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(r.record.Name(), &st); err != nil {
		r.b.t.Fatal(os.NewSyscallError("stat", err))
	}
	return st.Blocks * 512
}

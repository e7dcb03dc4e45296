//go:build linux

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/stream"
)

// asServer makes this test program a server that a test can kill. Its value is the [orders] for it.
const asServer = "ARBE_TEST_AS_SERVER"

// orders tell a victim what to work with, and what to read.
type orders struct {
	URL, Dir string
	Scope    db.Scope
	Read     string // the thread, if any, whose command "left" it reads
	Into     string // the file for the output it reads
}

// victim runs a server until it is killed.
func victim() {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println(detail(err))
			os.Exit(1)
		}
	}
	var o orders
	fail(json.Unmarshal([]byte(os.Getenv(asServer)), &o))
	d, err := db.Open(ctx, o.URL, db.Options{})
	fail(err)
	driver, err := local.New(ctx, commandtest.LocalConfig(o.Dir))
	fail(err)
	s, err := start(ctx, d, driver, roomy)
	fail(err)
	if o.Read != "" {
		fail(readInto(ctx, s, o))
	}
	select {}
}

// readInto writes the output of a command to a file as it arrives. It may be called before the command is requested.
func readInto(ctx context.Context, s *server, o orders) error {
	f, err := os.Create(o.Into)
	if err != nil {
		return err
	}
	for position := int64(0); ; {
		r, err := s.commands.Read(ctx, o.Scope, o.Read, "left", position, command.Reader{Intent: command.ReadOn})
		if fault.CodeOf(err) == fault.NotFound {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range r.Pieces {
			if _, err := f.Write(p.Data); err != nil {
				return err
			}
		}
		position = r.Position
	}
}

// victim starts a server in its own process, with the driver of a directory that the bench's next server may use after the
// kill.
func (b *bench) victim(o orders) (kill func()) {
	b.t.Helper()
	o.URL, o.Scope = b.ServerURL, b.Scope
	text, err := json.Marshal(o)
	if err != nil {
		b.t.Fatal(err)
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), asServer+"="+string(text))
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	if err := process.Start(); err != nil {
		b.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = process.Process.Kill() // fails only if it has ended
		_ = process.Wait()         // reports that it was killed
	})
	b.t.Cleanup(kill)
	return kill
}

// witness returns a bench whose own server does no work, so that a victim gets the commands. The log can be followed
// throughout.
func witness(t *testing.T) *bench {
	t.Helper()
	b := database(t)
	w, err := start(t.Context(), b.DB, commandtest.NewGated(), nil)
	if err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(w.log.Close)
	if err := w.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	b.use(w)
	return b
}

// roomy allows large artifacts.
func roomy(c *config) { c.Artifacts.MaxSize, c.Artifacts.Quota = 64<<20, 256<<20 }

// numbers prints 420,000 lines of 100 bytes, 42 MB, as fast as it can. It waits for a file after the first n lines.
func numbers(n int) string {
	return fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= 420000; i++) { printf "%%099d\n", i; if (i == %d) { fflush(); system("until test -e go; do sleep 0.05; done") } } }'`, n)
}

// isNumbers reports whether a text is what numbers prints.
func isNumbers(text string) bool {
	if len(text) != 42_000_000 {
		return false
	}
	for i := range 420_000 {
		if n, err := strconv.Atoi(text[100*i : 100*i+99]); err != nil || n != i+1 {
			return false
		}
	}
	return true
}

// lines prints this many numbered lines of 100 bytes, as fast as it can.
func lines(n int) string {
	return fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "%%099d\n", i }'`, n)
}

// abandoned is a command whose server was killed.
type abandoned struct {
	command entry.Command
	printed string                    // its output when its server is killed
	ended   func(b *bench, th string) // while there is no server
	next    func(b *bench, th string) // once there is the next one
	want    func(r entry.CommandResult) bool
}

var abandonedCommands = map[string]abandoned{
	"that is cancelled later is cancelled": {
		command: entry.Command{Command: "echo begun; sleep 1000"}, printed: "begun\n",
		next: func(b *bench, th string) { b.Cancel(th, "left") },
		want: func(r entry.CommandResult) bool { return r.Cancelled && r.Output == "begun\n" },
	},
	"that is cancelled while there is no server is ended by the next": {
		command: entry.Command{Command: "echo begun; sleep 1000"}, printed: "begun\n",
		ended: func(b *bench, th string) {
			// The queue has not noticed yet that its server is gone.
			_, err := b.Owner(b.t).Exec(b.t.Context(), "update "+db.JobSchema+".river_job set state = 'available' where state = 'running' and args->>'thread' = $1", th)
			if err != nil {
				b.t.Fatal(err)
			}
			b.Cancel(th, "left")
			if b.Results(th, "left") != 0 {
				b.t.Error("the log has a result while the command runs")
			}
		},
		want: func(r entry.CommandResult) bool { return r.Cancelled && r.Output == "begun\n" && r.SandboxID != "" },
	},
	"has its time limit from its beginning": {
		command: entry.Command{Command: "echo begun; sleep 1000", TimeoutMS: 5000}, printed: "begun\n",
		want: func(r entry.CommandResult) bool {
			return r.TimedOut && r.ExitCode == 124 && r.Output == "begun\n" && r.DurationMS >= 5000
		},
	},
	"has the head, the tail and the artifact of a large output": {
		command: entry.Command{Command: "echo begun; seq 1 200000; until test -e go; do sleep 0.05; done; seq 1 200000"}, printed: "200000\n",
		next: func(b *bench, th string) { b.Sh(th, "touch go") },
		want: func(r entry.CommandResult) bool {
			return r.ExitCode == 0 && r.Truncated && r.OutputBytes == 2*1288895+6 && r.ArtifactBytes == 2*1288895+6 && !r.ArtifactPart &&
				strings.HasPrefix(r.Output, "begun\n1\n2\n") && strings.HasSuffix(r.OutputTail, "\n199999\n200000\n")
		},
	},
}

// One server is killed while it runs all these commands, and the next one continues them.
func TestTheCommandsOfAKilledServer(t *testing.T) {
	t.Parallel()
	b, dir, into := witness(t), t.TempDir(), filepath.Join(t.TempDir(), "read")
	const readLines = 400_000 // 40 MB: more than memory and the record hold
	read := b.Thread(sandbox.Recipe{})
	kill := b.victim(orders{Dir: dir, Read: read, Into: into})
	begin := func(c entry.Command, printed string) (thread string) {
		thread = b.Thread(sandbox.Recipe{})
		b.AskFor(thread, "left", c)
		b.Printed(thread, "left", printed)
		return thread
	}
	threads := map[string]string{}
	for name, c := range abandonedCommands {
		threads[name] = begin(c.command, c.printed)
	}
	outlives := begin(entry.Command{Command: "echo ran >> runs; echo begun; echo $$ > pid; until test -e go; do sleep 0.05; done; echo ended >&2; exit 7"}, "begun\n")
	numbered := map[int]string{} // by the line at which they wait
	for _, n := range []int{1, 300_000} {
		numbered[n] = begin(entry.Command{Command: numbers(n) + "; exit 3"}, fmt.Sprintf("%099d\n", n))
	}
	b.AskFor(read, "left", entry.Command{Command: lines(readLines) + "; exit 5", Separate: true})
	b.grows(into, 22_000_000)
	ends := begin(entry.Command{Command: "echo begun; sleep 1; echo ended; exit 3"}, "begun\n") // last, so that it ends without a server
	kill()
	for name, c := range abandonedCommands {
		if c.ended != nil {
			c.ended(b, threads[name])
		}
	}
	seen := make(chan string, 1)
	go func() {
		seen <- b.live(outlives, "left", func(s string) bool { return strings.HasSuffix(s, "ended\n") })
	}()
	b.driver, b.tune = commandtest.NewLocal(t, dir), roomy
	b.use(b.serve())

	// First, because a command drops output whose reader has been away for a minute.
	t.Run("that is read is read on where its reader was", func(t *testing.T) {
		before, err := os.ReadFile(into)
		if err != nil {
			t.Fatal(err)
		}
		check := &counted{}
		check.Write(before)
		if n := b.read(read, "left", int64(len(before)), check); n != readLines*100 || check.wrong != "" || check.at != n {
			t.Errorf("read %d bytes before the restart and %d after it: %s", len(before), n-int64(len(before)), check.wrong)
		}
		if r := b.Result(read, "left"); r.ExitCode != 5 || r.RawBytes != readLines*100 || r.Error != "" {
			t.Errorf("the exit code is %d, the output has %d bytes, and the error is %q", r.ExitCode, r.RawBytes, r.Error)
		}
	})
	for name, c := range abandonedCommands {
		t.Run(name, func(t *testing.T) {
			if c.next != nil {
				c.next(b, threads[name])
			}
			if r := b.Result(threads[name], "left"); !c.want(r) {
				r.Output, r.OutputTail = r.Output[:min(len(r.Output), 100)], r.OutputTail[max(0, len(r.OutputTail)-100):]
				t.Errorf("the result is %+v", r)
			}
		})
	}
	t.Run("that ends while there is no server has its exit code", func(t *testing.T) {
		if r := b.Result(ends, "left"); r.ExitCode != 3 || r.Output != "begun\nended\n" || r.DurationMS < 1000 {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("that goes on is followed to its end, and its watchers see all of it", func(t *testing.T) {
		if r := b.Sh(outlives, "kill -0 $(cat pid) && touch go"); r.ExitCode != 0 {
			t.Errorf("the command no longer runs: %+v", r)
		}
		r := b.Result(outlives, "left")
		if r.ExitCode != 7 || r.Output != "begun\nended\n" || r.OutputBytes != 12 || r.Error != "" || r.SandboxID == "" || r.Cancelled || r.TimedOut {
			t.Errorf("the result is %+v", r)
		}
		if got := <-seen; got != "begun\nended\n" && got != "begun\n" { // the result may come first
			t.Errorf("the watcher has seen %q", got)
		}
	})
	for n, thread := range numbered {
		t.Run(fmt.Sprintf("that printed %d lines has its complete output in an artifact", n), func(t *testing.T) {
			b.Sh(thread, "touch go")
			r := b.Result(thread, "left")
			if _, text := b.content(r.ArtifactID); r.ExitCode != 3 || r.ArtifactPart || r.OutputBytes != 42_000_000 || !isNumbers(text) {
				t.Errorf("of %d bytes, %d are kept, or others: %s", r.OutputBytes, len(text), r.Outcome())
			}
		})
	}
	t.Run("is not run again by one more server that looks for orphans", func(t *testing.T) {
		b.serve()
		b.swept(b.Owner(t))
		if r := b.Sh(outlives, "cat runs"); r.Output != "ran\n" || b.Results(outlives, "left") != 1 {
			t.Errorf("the runs are %q and there are %d results, want one of each", r.Output, b.Results(outlives, "left"))
		}
	})
	t.Run("leaves no record behind", func(t *testing.T) {
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // the last one is deleted after its result
			left, err := filepath.Glob(filepath.Join(dir, "boxes", "*", "records", "*"))
			if err == nil && len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the records %v are left (%v)", left, err)
			}
		}
	})
}

// grows waits until a file has this many bytes.
func (b *bench) grows(file string, size int64) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		info, err := os.Stat(file)
		if err == nil && info.Size() >= size {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the file has %v (%v)", info, err)
		}
	}
}

// live returns the part of a command's output that a watcher has seen, assembled by its offsets.
func (b *bench) live(thread, commandID string, enough func(string) bool) string {
	b.t.Helper()
	var seen []byte
	b.Follow(thread, func(ev stream.Event) bool {
		if d := ev.Delta; d != nil && d.EntryID == entry.ResultID(commandID) {
			if d.Offset > int64(len(seen)) {
				b.t.Fatalf("bytes %d to %d are missing", len(seen), d.Offset)
			}
			if known := int64(len(seen)) - d.Offset; known < int64(len(d.Data)) {
				if known > 0 && string(seen[d.Offset:]) != string(d.Data[:known]) {
					b.t.Fatalf("at %d it is %q, and then %q", d.Offset, seen[d.Offset:], d.Data[:known])
				}
				seen = append(seen, d.Data[known:]...)
			}
		}
		return enough(string(seen)) || ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID)
	})
	return string(seen)
}

// Commands whose sandboxes ended with the server are reported as interrupted.
func TestTheSandboxesOfAKilledServer(t *testing.T) {
	t.Parallel()
	b, dir := witness(t), t.TempDir()
	kill := b.victim(orders{Dir: dir})
	stopped, destroyed := b.Thread(sandbox.Recipe{}), b.Thread(sandbox.Recipe{})
	for _, th := range []string{stopped, destroyed} {
		b.AskFor(th, "left", entry.Command{Command: "echo begun; sleep 1000"})
		b.Printed(th, "left", "begun\n")
	}
	kill()
	d, err := local.New(t.Context(), commandtest.LocalConfig(dir))
	if err != nil {
		t.Fatal(detail(err))
	}
	boxes, err := d.List(t.Context(), sandbox.Labels{Thread: destroyed})
	if err != nil || len(boxes) != 1 {
		t.Fatal(boxes, err)
	}
	if err := errors.Join(d.Destroy(t.Context(), boxes[0].Ref), d.Halt(t.Context())); err != nil {
		t.Fatal(detail(err))
	}
	b.driver = commandtest.NewLocal(t, dir)
	b.use(b.serve())
	for th, output := range map[string]string{stopped: "begun\n", destroyed: ""} {
		r := b.Result(th, "left")
		if r.ExitCode != -1 || r.Output != output || !strings.Contains(r.Error, "the server stopped while the command was running") || r.SandboxID == "" ||
			strings.Contains(r.Outcome(), "did not run") {
			t.Errorf("the result is %+v", r)
		}
	}
}

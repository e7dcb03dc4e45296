//go:build linux

package local_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// negligent is a process that inherits the children of a killed server and reaps none of them until its input ends.
// Process 1 of many containers does the same.
func negligent(dir string) {
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		id := os.Getenv("ARBE_TEST_BOX")
		err = killBusyServer(dir, id, func() error { return visit(id) })
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("killed")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// visit puts a process into a box that is not a child of any process in it, and makes it an orphan of this process. The
// box's process 1 does not end until someone reaps it.
func visit(id string) error {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, name := range groups {
		group, _ := os.ReadFile(name)
		command, _ := os.ReadFile(filepath.Dir(name) + "/comm")
		if !strings.Contains(string(group), id) || string(command) != "supervisor\n" {
			continue
		}
		enter := exec.Command("nsenter", "--pid", "--target", filepath.Base(filepath.Dir(name)), "sh", "-c", "echo; exec sleep 5000")
		out, err := enter.StdoutPipe()
		if err != nil {
			return err
		}
		if err := enter.Start(); err != nil {
			return err
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return err
		}
		err = enter.Process.Kill()
		_ = enter.Wait() // reports that it was killed
		return err
	}
	return errors.New("the box has no process 1")
}

// startNegligent starts a negligent process, which starts and kills a server. end lets the process end.
func startNegligent(t *testing.T, dir, id string) (pid int, end func()) {
	t.Helper()
	if err := local.Install(t.Context()); err != nil {
		t.Skip(fault.From(err).Error())
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "ARBE_TEST_NEGLIGENT_DIR="+dir, "ARBE_TEST_BOX="+id)
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 200)
	if n, _ := stdout.Read(said); string(said[:n]) != "killed\n" {
		t.Fatalf("the server's parent said %q", said[:n])
	}
	end = sync.OnceFunc(func() {
		stdin.Close()
		_ = parent.Wait()
	})
	t.Cleanup(end)
	return parent.Process.Pid, end
}

// unreaped lists the ended children of a process that it has not reaped.
func unreaped(t *testing.T, parent int) []string {
	t.Helper()
	out, err := exec.Command("ps", "--ppid", fmt.Sprint(parent), "-o", "stat=,comm=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Z") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestADeadContainerThatNobodyReapsIsInNobodysWay(t *testing.T) {
	needRoot(t)
	dir, id := t.TempDir(), word("unreaped")
	parent, reap := startNegligent(t, dir, id)

	begin := time.Now()
	d := newDriver(t, local.Config{Dir: dir})
	if took := time.Since(begin); took > patience {
		t.Errorf("the next server needed %v to start", took)
	}
	remains := func() []string {
		found, _ := filepath.Glob("/run/arbe/*/" + id + ".*")
		return found
	}
	for late := time.Now(); len(unreaped(t, parent)) < 2 && time.Since(late) < patience; {
		// On a busy machine, a killed process ends only when it is scheduled once more.
	}
	if len(unreaped(t, parent)) != 2 {
		t.Fatalf("the parent has not reaped %v: this test tests nothing", unreaped(t, parent))
	}
	if got := sh(t, d, found(t, d, id), "cat f; echo more >> f"); got != "written\n" {
		t.Errorf("the box's file is %q", got)
	}
	closeDriver(t, d)

	d = newDriver(t, local.Config{Dir: dir})
	if got := sh(t, d, found(t, d, id), "cat f"); got != "written\nmore\n" {
		t.Errorf("after another start the box's file is %q", got)
	}
	if err := d.Destroy(t.Context(), found(t, d, id)); err != nil {
		t.Error(fault.From(err).Detail())
	}
	if _, err := os.Stat(dir + "/boxes/" + id); err == nil {
		t.Error("the deleted box has files")
	}
	reap()
	closeDriver(t, d)
	if left := traces(t, id); left != "" || len(remains()) > 0 {
		t.Errorf("when it could be cleared away, this is left: %v\n%s", remains(), left)
	}
}

func TestOrphansAreReapedAndNobodysChildrenAreStolen(t *testing.T) {
	needRoot(t)
	d := newDriver(t, local.Config{Dir: t.TempDir()}) // makes this process inherit orphans
	defer closeDriver(t, d)
	ref := create(t, d, sandbox.Spec{ID: "beside"})

	late := exec.Command("sh", "-c", "exit 8") // ends long before this test waits for it
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := exec.Command("sh", "-c", "exit 7").Run()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
					t.Errorf("somebody else's child ended with %v", err)
					return
				}
			}
		})
	}
	defer func() { closeDriver(t, newDriver(t, local.Config{Dir: t.TempDir()})) }() // cleans up after the servers that are killed here
	for range 2 {
		startAndKill(t, t.TempDir(), word("orphans"))
		if result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "exit 9"}}); err != nil || result.ExitCode != 9 {
			t.Errorf("a command ended with %+v, %v", result, err)
		}
	}
	close(stop)
	others.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](late.Wait()); !ok || exit.ExitCode() != 8 {
		t.Errorf("a child that was not waited for at once ended with %v", exit)
	}
	for deadline := time.Now().Add(patience); zombies(t) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody reaped:\n%s", zombies(t))
		}
	}
}

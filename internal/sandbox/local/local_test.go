//go:build linux

package local_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// TestMain can turn the test program into a server that a test kills, or into such a server's parent.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ARBE_TEST_NEGLIGENT_DIR"); dir != "" {
		_ = os.Unsetenv("ARBE_TEST_NEGLIGENT_DIR")
		negligent(dir)
	}
	if dir := os.Getenv("ARBE_TEST_SERVER_DIR"); dir != "" {
		victim(dir)
	}
	if dir := os.Getenv("ARBE_TEST_KEEPER_DIR"); dir != "" {
		keeper(dir)
	}
	if dir := os.Getenv("ARBE_TEST_CREATOR_DIR"); dir != "" {
		creator(dir)
	}
	// The disks of boxes are files, and a file system in memory, where temporary files may be, counts their blocks in another way.
	if os.Getuid() == 0 { // for another user, TestAnOrdinaryUserCanRunBoxes has chosen one
		_ = os.Setenv("TMPDIR", "/var/tmp")
	}
	os.Exit(m.Run())
}

// newDriver opens a driver and installs the runtime if possible. The caller must close the driver.
func newDriver(t testing.TB, cfg local.Config) *local.Driver {
	t.Helper()
	if err := local.Install(t.Context()); err != nil {
		t.Skip(fault.From(err).Error())
	}
	d, err := local.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return d
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the test needs to be root")
	}
}

func closeDriver(t testing.TB, d *local.Driver) {
	t.Helper()
	if err := d.Close(context.Background()); err != nil {
		t.Errorf("close: %s", fault.From(err).Detail())
	}
}

func create(t testing.TB, d *local.Driver, spec sandbox.Spec) string {
	t.Helper()
	if spec.Limits.DiskMB == 0 {
		spec.Limits.DiskMB = 64
	}
	ref, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return ref
}

// found returns the ref of an existing box.
func found(t testing.TB, d *local.Driver, id string) string {
	t.Helper()
	boxes, err := d.List(t.Context(), sandbox.Labels{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		if b.ID == id {
			return b.Ref
		}
	}
	t.Fatalf("there is no box %s", id)
	return ""
}

func sh(t testing.TB, d *local.Driver, ref, script string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return out.String()
}

// traces finds the mounts, control groups, loop devices and processes on the machine that belong to boxes whose id
// contains word.
func traces(t testing.TB, word string) string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, word) {
			found = append(found, "mount "+line)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(filepath.Base(path), word) {
			found = append(found, "group "+path)
		}
		return nil
	})
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range loops {
		if backing, _ := os.ReadFile(file); strings.Contains(string(backing), word) {
			found = append(found, "loop device "+string(backing))
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		if line, _ := os.ReadFile(file); strings.Contains(string(line), word) {
			found = append(found, "process "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return strings.Join(found, "\n")
}

// named returns a command that keeps running, with a word in its argument list.
func named(word string) string { return "sh -c 'sleep 5000; :' " + word }

// patience is how long a test waits for something that must happen.
const patience = 3 * time.Minute

// word returns a word that nothing else on the machine contains.
func word(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

func TestABoxLeavesNothingOnTheMachine(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	id := word("traceless")
	ref := create(t, d, sandbox.Spec{ID: id})
	sh(t, d, ref, "(setsid "+named(id)+" &) ; "+named(id)+" & :")
	if traces(t, id) == "" {
		t.Fatal("the test cannot find anything of a box that runs")
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if left := traces(t, id); left != "" {
		t.Errorf("destroyed, and this is left:\n%s", left)
	}
	if names, _ := filepath.Glob(dir + "/boxes/*"); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
	closeDriver(t, d)
	if left := traces(t, filepath.Base(filepath.Dir(dir))); left != "" {
		t.Errorf("closed, and this is left:\n%s", left)
	}
	if children := zombies(t); children != "" {
		t.Errorf("zombies: %s", children)
	}
}

// zombies lists the children of this process that nobody reaped.
func zombies(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("ps", "--ppid", fmt.Sprint(os.Getpid()), "-o", "stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Z") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

func TestABoxOfAnotherMachineIsNotTakenForOneThatIsGone(t *testing.T) {
	here, there := newDriver(t, local.Config{Dir: t.TempDir()}), newDriver(t, local.Config{Dir: t.TempDir()})
	defer closeDriver(t, here)
	defer closeDriver(t, there)
	ref := create(t, there, sandbox.Spec{ID: word("there")})
	if live, err := here.Probe(t.Context(), ref); live != sandbox.Unknown || err != nil {
		t.Errorf("probe: %s, %v", live, err)
	}
	if _, err := here.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("exec: %v", err)
	}
	if err := here.Destroy(t.Context(), ref); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("destroy: %v", err)
	}
	if got := sh(t, there, ref, "echo works"); got != "works\n" {
		t.Errorf("there it says %q", got)
	}
}

func TestFilesOutliveTheServerAndProcessesDoNot(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	id := word("kept")
	labels := sandbox.Labels{House: "h", Thread: "t"}
	ref := create(t, d, sandbox.Spec{ID: id, Labels: labels})
	sh(t, d, ref, "echo workspace > f; echo home > ~/f; "+named(id)+" &")
	closeDriver(t, d)
	if left := traces(t, id); left != "" {
		t.Errorf("closed, and this is left:\n%s", left)
	}

	d = newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	if live, err := d.Probe(t.Context(), ref); live != sandbox.Live || err != nil {
		t.Errorf("probe: %s, %v", live, err)
	}
	if found, err := d.List(t.Context(), labels); err != nil || len(found) != 1 || found[0].Ref != ref {
		t.Errorf("list: %+v, %v", found, err)
	}
	if got := sh(t, d, ref, "cat f ~/f; id -u"); got != fmt.Sprintf("workspace\nhome\n%d\n", d.Capabilities().UserID) {
		t.Errorf("found %q", got)
	}
	if again, err := d.Create(t.Context(), sandbox.Spec{ID: id}); again != ref || err != nil {
		t.Errorf("created again: %q, %v", again, err)
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// victim is a server that fills a box and waits to be killed.
func victim(dir string) {
	ctx := context.Background()
	grace, _ := time.ParseDuration(os.Getenv("ARBE_TEST_GRACE")) // 0 if not set
	d, err := local.New(ctx, local.Config{Dir: dir, Runtime: os.Getenv("ARBE_TEST_RUNTIME"), Grace: grace})
	var ref string
	if err == nil {
		ref, err = d.Create(ctx, sandbox.Spec{ID: os.Getenv("ARBE_TEST_BOX"), Limits: sandbox.Limits{DiskMB: 64}})
	}
	if err == nil {
		_, err = d.Exec(ctx, ref, sandbox.Command{
			Argv:   []string{"sh", "-c", "echo written > f; setsid " + named(os.Getenv("ARBE_TEST_BOX")) + " & sync; until test $(ps -o sid= -p $!) = $!; do sleep 0.01; done; echo ready; trap '' TERM HUP PIPE; while :; do sleep 5000; done"},
			Stdout: os.Stdout,
		})
	}
	fmt.Println(err)
	os.Exit(1)
}

// startAndKill starts a server in another process and kills it while its box is busy.
func startAndKill(t *testing.T, dir, id string) {
	t.Helper()
	if err := local.Install(t.Context()); err != nil {
		t.Skip(fault.From(err).Error())
	}
	if err := killBusyServer(dir, id, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// killBusyServer starts a server, calls before when its box is busy, and kills the server.
func killBusyServer(dir, id string, before func() error) error {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), "ARBE_TEST_SERVER_DIR="+dir, "ARBE_TEST_BOX="+id)
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	said := make([]byte, 100)
	if n, _ := stdout.Read(said); string(said[:n]) != "ready\n" {
		return fmt.Errorf("the server said %q", said[:n])
	}
	err = before()
	_ = server.Process.Kill()
	_ = server.Wait()
	return err
}

func TestAKilledServer(t *testing.T) {
	needRoot(t)
	dir, id := t.TempDir(), word("victim")
	startAndKill(t, dir, id)
	t.Run("takes everything that runs in its boxes with it", func(t *testing.T) {
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			left := ""
			for line := range strings.Lines(traces(t, id)) {
				if strings.HasPrefix(line, "process sh") {
					left += line
				}
			}
			if left == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("still running:\n%s", left)
			}
		}
	})
	// A server that was killed during a creation leaves this.
	if err := os.Mkdir(filepath.Join(dir, "boxes", "unfinished"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, local.Config{Dir: dir})
	t.Run("is swept up after by the next", func(t *testing.T) {
		if left := traces(t, id); left != "" {
			t.Errorf("this is left:\n%s", left)
		}
		if _, err := os.Stat(filepath.Join(dir, "boxes", "unfinished")); err == nil {
			t.Error("an unfinished box is left")
		}
	})
	t.Run("loses no file", func(t *testing.T) {
		if got := sh(t, d, found(t, d, id), "cat f"); got != "written\n" {
			t.Errorf("found %q", got)
		}
	})
	if err := d.Destroy(t.Context(), found(t, d, id)); err != nil {
		t.Error(err)
	}
	closeDriver(t, d)
}

func TestAServerClearsAwayWhatAKilledOneWithAnotherDirectoryLeft(t *testing.T) {
	needRoot(t)
	dir, id := t.TempDir(), word("abandoned")
	startAndKill(t, dir, id)
	d := newDriver(t, local.Config{Dir: t.TempDir()})
	if left := traces(t, id); left != "" {
		t.Errorf("this is left:\n%s", left)
	}
	closeDriver(t, d)
	d = newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	if got := sh(t, d, found(t, d, id), "cat f"); got != "written\n" {
		t.Errorf("its own next server found %q", got)
	}
	if err := d.Destroy(t.Context(), found(t, d, id)); err != nil {
		t.Error(err)
	}
}

func TestADataDirectoryThatNobodyElseMayEnter(t *testing.T) {
	needRoot(t)
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "data", "local")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	ref := create(t, d, sandbox.Spec{ID: "closed"})
	if got := sh(t, d, ref, "echo works > f && cat f; ls "+closed+" 2>/dev/null"); got != "works\n" {
		t.Errorf("%q", got)
	}
}

func TestBoxesShareNoUserID(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	seen := map[string]string{}
	look := func(d *local.Driver, ref string) {
		t.Helper()
		owner := strings.Fields(sh(t, d, ref, "cat /proc/self/uid_map"))[1]
		if other, taken := seen[owner]; taken && other != ref {
			t.Errorf("%s and %s both have the ids from %s", ref, other, owner)
		}
		seen[owner] = ref
	}
	d := newDriver(t, local.Config{Dir: dir})
	look(d, create(t, d, sandbox.Spec{ID: "first"}))
	look(d, create(t, d, sandbox.Spec{ID: "second"}))
	closeDriver(t, d)
	d = newDriver(t, local.Config{Dir: dir})
	look(d, create(t, d, sandbox.Spec{ID: "third"}))
	for _, id := range []string{"first", "second"} {
		look(d, found(t, d, id))
	}
	closeDriver(t, d)
	if len(seen) != 3 {
		t.Errorf("ids changed over a restart: %v", seen)
	}
}

// A box must not see the disks, devices and memory of the whole machine in /proc.
func TestABoxDoesNotSeeTheDisksOfItsMachine(t *testing.T) {
	needRoot(t)
	d := newDriver(t, local.Config{Dir: t.TempDir()})
	defer closeDriver(t, d)
	ref := create(t, d, sandbox.Spec{ID: word("masked")})
	for _, name := range []string{"partitions", "diskstats", "swaps", "interrupts", "kallsyms", "modules", "zoneinfo", "devices"} {
		if of, err := os.ReadFile("/proc/" + name); err != nil || len(of) == 0 {
			continue // this kernel has nothing to hide there
		}
		if shown := sh(t, d, ref, "cat /proc/"+name+" 2>/dev/null | wc -c"); strings.TrimSpace(shown) != "0" {
			t.Errorf("/proc/%s shows %s bytes", name, shown)
		}
	}
}

func TestAMissingRuntimeIsNamed(t *testing.T) {
	_, err := local.New(t.Context(), local.Config{Dir: t.TempDir(), Runtime: "no-such-runtime"})
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "apt-get install runc") {
		t.Errorf("%v", err)
	}
}

func TestAMachineThatCannotRunBoxesIsNamed(t *testing.T) {
	_, err := local.New(t.Context(), local.Config{Dir: t.TempDir(), Runtime: "/bin/false"})
	if fault.CodeOf(err) != fault.Precondition {
		t.Errorf("%v", err)
	}
}

func TestAnOrdinaryUserCanRunBoxes(t *testing.T) {
	needRoot(t) // to become an ordinary user
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("setpriv is not installed")
	}
	if err := local.Install(t.Context()); err != nil {
		t.Skip(fault.From(err).Error())
	}
	// The user needs a directory and a test binary that it can reach. Its boxes have no disks, so that memory serves.
	dir, err := os.MkdirTemp("/var/tmp", "arbe-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const uid = 54321
	test := filepath.Join(dir, "test")
	if err := os.WriteFile(test, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, test} {
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups",
		test, "-test.v", "-test.run", "TestConformance|TestFilesOutlive|TestABoxLeaves|Survi|Launch|Halting|TestABoxReaches|TestANetworkOutlives|TestAPolicyChanges")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

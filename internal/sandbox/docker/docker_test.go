//go:build linux

package docker_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// patience limits how long a test waits for an engine.
const patience = 2 * time.Minute

// shared is the engine that most tests use.
var shared struct {
	sync.Once
	*dockertest.Engine
	why string // why there is no engine; empty if there is one
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Engine != nil {
		shared.Remove()
	}
	os.Exit(code)
}

// sharedEngine returns the engine that most tests use. It skips the test where no engine can be started.
func sharedEngine(t testing.TB) *dockertest.Engine {
	t.Helper()
	shared.Do(func() { shared.Engine, shared.why = dockertest.Open("") })
	if shared.why != "" {
		t.Skip(shared.why)
	}
	return shared.Engine
}

// open returns a driver for an engine. A test that changes the configuration closes the driver itself.
func open(t testing.TB, host string, change ...func(*docker.Config)) *remote.Driver {
	t.Helper()
	cfg := docker.Config{Host: host, Image: dockertest.BaseImage}
	for _, c := range change {
		c(&cfg)
	}
	driver, err := docker.Open(cfg)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return driver
}

// opened is like open, but closes the driver when the test ends.
func opened(t testing.TB, host string, change ...func(*docker.Config)) *remote.Driver {
	t.Helper()
	d := open(t, host, change...)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func TestConformance(t *testing.T) {
	e := sharedEngine(t)
	sandboxtest.Run(t, false, func(t *testing.T) sandbox.Driver { return open(t, e.Host()) })
}

func TestWhatRunsOutlivesItsDriver(t *testing.T) {
	e := sharedEngine(t)
	sandboxtest.RunSurvival(t, func(t *testing.T) sandbox.Driver { return open(t, e.Host()) })
}

func TestLaunchedCommands(t *testing.T) {
	e := sharedEngine(t)
	sandboxtest.RunLaunches(t, func(t *testing.T) sandbox.Launcher { return open(t, e.Host()) })
}

func TestTerminals(t *testing.T) {
	e := sharedEngine(t)
	sandboxtest.RunTerminals(t, func(t *testing.T) sandbox.Terminals { return open(t, e.Host()) })
}

var small = sandbox.Limits{MemoryMB: 256, PIDs: 128, CPUs: 1}

// create creates a box of the installation "here" and destroys it when the test ends.
func create(t *testing.T, d sandbox.Driver, id string) string {
	t.Helper()
	return createOf(t, d, "here", id)
}

// createOf is like create, for another installation. A driver stops idle boxes and opens doors in its own installation only.
func createOf(t *testing.T, d sandbox.Driver, installation, id string) string {
	t.Helper()
	ref, err := d.Create(t.Context(), sandbox.Spec{ID: id, Labels: sandbox.Labels{Installation: installation, House: "house of " + id}, Limits: small})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	t.Cleanup(func() { _ = d.Destroy(context.Background(), ref) })
	return ref
}

// run runs a line of shell and returns its output and exit code.
func run(t *testing.T, d sandbox.Driver, ref, script string) (out string, code int) {
	t.Helper()
	var said strings.Builder
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &said, Merged: true})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return said.String(), result.ExitCode
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("%v has the code %q, want %q", err, fault.CodeOf(err), want)
	}
}

func inspect(t *testing.T, e *dockertest.Engine, ref string) container.InspectResponse {
	t.Helper()
	found, err := e.ContainerInspect(t.Context(), ref, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Container
}

func TestACommandReachesNothingOfTheEngine(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "hostile")
	for name, c := range map[string]struct{ script, want string }{
		"the user is unprivileged":                 {"id -u", "1000\n"},
		"no capability in any set":                 {`grep -c '^Cap.*:[[:space:]]*0000000000000000$' /proc/self/status`, "5\n"},
		"no new privileges":                        {"grep NoNewPrivs /proc/self/status | tr -d '[:space:]'", "NoNewPrivs:1"},
		"a system call filter":                     {"grep Seccomp: /proc/self/status | tr -d '[:space:]'", "Seccomp:2"},
		"a setuid program gives nothing":           {"cp $(command -v id) me && chmod 6755 me && ./me -u", "1000\n"},
		"no socket of the engine":                  {`find / -xdev \( -name '*.sock' -o -type s \) -not -path '/proc/*' -not -path '/var/lib/arbe/*' 2>/dev/null; true`, ""},
		"no block devices":                         {"find /dev -type b", ""},
		"no device nodes":                          {"mknod disk b 8 0 2>/dev/null || echo refused", "refused\n"},
		"no mounts":                                {"mount -t tmpfs none /tmp 2>/dev/null || echo refused", "refused\n"},
		"no user namespace":                        {"unshare --user true 2>/dev/null || echo refused", "refused\n"},
		"no namespace of process 1":                {"nsenter --target 1 --mount true 2>/dev/null || echo refused", "refused\n"},
		"process 1 shows nothing":                  {"cat /proc/1/environ 2>/dev/null || ls /proc/1/root/ 2>/dev/null || echo refused", "refused\n"},
		"process 1 cannot be limited":              {"prlimit --pid 1 --cpu=1:1 2>/dev/null || echo refused", "refused\n"},
		"the program of process 1 stays":           {"rm -f /.arbe/keeper 2>/dev/null || echo x > /.arbe/keeper; test -s /.arbe/keeper && echo there", "there\n"},
		"the image stays":                          {"touch /etc/x /usr/x /x 2>/dev/null; ls /etc/x /usr/x /x 2>/dev/null; true", ""},
		"no kernel memory":                         {"head -c 1 /proc/kcore 2>/dev/null | wc -c; head -c 1 /dev/mem 2>/dev/null | wc -c", "0\n0\n"},
		"no settings of the kernel":                {"echo 1 2>/dev/null > /proc/sys/vm/drop_caches || echo refused", "refused\n"},
		"no group of the machine's control groups": {"cut -d: -f3 /proc/self/cgroup | sort -u", "/\n"},
		"a network of its own without a way out":   {"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := run(t, d, ref, c.script); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%s\nprinted %q, want %q", c.script, got, c.want)
			}
		})
	}
	made := inspect(t, e, ref).HostConfig
	if made.Privileged || len(made.Binds)+len(made.Mounts)+len(made.Devices)+len(made.CapAdd)+len(made.PortBindings) != 0 || len(made.MaskedPaths) == 0 {
		t.Errorf("%+v", made)
	}
}

func TestNothingInABoxEndsProcess1(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "unkillable")
	begun := inspect(t, e, ref).State.StartedAt
	for range 3 {
		for _, script := range []string{"kill -9 -1", "kill -9 1", "kill -TERM 1", "kill -STOP 1", "(setsid sh -c 'for i in 1 2 3; do kill -9 -1; done' &)"} {
			run(t, d, ref, script)
		}
	}
	if got, _ := run(t, d, ref, "echo on"); got != "on\n" {
		t.Errorf("the next command printed %q", got)
	}
	if now := inspect(t, e, ref).State.StartedAt; now != begun {
		t.Errorf("it was restarted at %s, after %s", now, begun)
	}
}

func TestABoxIsStartedAnewIfNothingStartsInItAnyMore(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "crowded")
	run(t, d, ref, "echo kept > kept")
	run(t, d, ref, `perl -e 'exit if fork; $SIG{TERM} = "IGNORE"; while (1) { fork }'`)
	if got, code := run(t, d, ref, "cat kept"); got != "kept\n" {
		t.Errorf("a command after it printed %q, and ended with %d", got, code)
	}
}

func TestContainersOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "mine")
	name := remote.Prefix("here") + "taken"
	foreign, err := e.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: &container.Config{Image: dockertest.BaseImage, Cmd: []string{"sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := e.ContainerRemove(context.Background(), foreign.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Errorf("the foreign container: %v", err)
		}
	})
	_, err = d.Create(t.Context(), sandbox.Spec{ID: "taken", Labels: sandbox.Labels{Installation: "here"}, Limits: small})
	wantCode(t, err, fault.Precondition)
	wantCode(t, d.Destroy(t.Context(), foreign.ID), fault.Precondition)
	_, err = d.Quarantine(t.Context(), foreign.ID)
	wantCode(t, err, fault.Precondition)
	for _, installation := range []string{"here", "there"} {
		found, err := d.List(t.Context(), sandbox.Labels{Installation: installation})
		if err != nil {
			t.Fatal(err)
		}
		for _, box := range found {
			if box.Ref == foreign.ID || box.Ref == ref && installation == "there" {
				t.Errorf("%s has %+v", installation, box)
			}
		}
	}
	if live, err := d.Probe(t.Context(), foreign.ID); live != sandbox.Unknown || err != nil {
		t.Errorf("the foreign container is %s, %v", live, err)
	}
}

func TestLimitsAndLabelsReachTheEngine(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host(), func(c *docker.Config) { c.PerHouse = 1 })
	labels := sandbox.Labels{Installation: "here", House: "h", Thread: "t", Environment: "e"}
	ref, err := d.Create(t.Context(), sandbox.Spec{ID: "limited", Labels: labels, Limits: sandbox.Limits{MemoryMB: 300, PIDs: 100, CPUs: 10000, DiskMB: 100}})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	t.Cleanup(func() { _ = d.Destroy(context.Background(), ref) })
	made := inspect(t, e, ref)
	about, err := e.Info(t.Context(), client.InfoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := made.HostConfig.Resources
	if r.Memory != 300<<20 || r.MemorySwap != r.Memory || *r.PidsLimit < 100 || *r.PidsLimit > 200 || r.NanoCPUs != int64(about.Info.NCPU)*1e9 {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"arbe.installation": "here", "arbe.house": "h", "arbe.thread": "t", "arbe.environment": "e", "arbe.sandbox": "limited"} {
		if made.Config.Labels[name] != want {
			t.Errorf("%s is %q", name, made.Config.Labels[name])
		}
	}
	_, err = d.Create(t.Context(), sandbox.Spec{ID: "one-more", Labels: labels, Limits: small})
	wantCode(t, err, fault.Exhausted)
	if d.Machine() == "" || d.Machine() != opened(t, e.Host()).Machine() {
		t.Errorf("the machine is %q", d.Machine())
	}
}

func TestWhatABoxReaches(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	spec := func(id string, mode egress.Mode) sandbox.Spec {
		return sandbox.Spec{ID: id, Labels: sandbox.Labels{Installation: "here"}, Limits: small, Egress: egress.Policy{Mode: mode}}
	}
	none, other := opened(t, e.Host()), opened(t, e.Host(), func(c *docker.Config) { c.Network = "not-there" })
	if !none.Offline() || other.Offline() {
		t.Error("only the driver without a network is offline")
	}
	for _, d := range []sandbox.Driver{none, other} {
		_, err := d.Create(t.Context(), spec("listed", egress.Listed))
		wantCode(t, err, fault.Precondition)
	}
	_, err := other.Create(t.Context(), spec("unconnected", egress.Open))
	wantCode(t, err, fault.Precondition)
	if found, err := other.List(t.Context(), sandbox.Labels{Installation: "here"}); err != nil || has(found, "unconnected") || has(found, "listed") {
		t.Errorf("left: %+v, %v", found, err)
	}
	for d, mode := range map[sandbox.Driver]egress.Mode{none: egress.Open, other: egress.None} {
		ref, err := d.Create(t.Context(), spec("alone-"+string(mode), mode))
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if got, _ := run(t, d, ref, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"); got != "lo\n" {
			t.Errorf("it has the interfaces %q", got)
		}
		if err := d.Destroy(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
}

func has(boxes []sandbox.Box, id string) bool {
	for _, box := range boxes {
		if box.ID == id {
			return true
		}
	}
	return false
}

func TestAnIdleBoxIsStoppedAndKeepsItsFiles(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host(), func(c *docker.Config) { c.IdleStop = 200 * time.Millisecond })
	idle, busy := createOf(t, d, "idle", "idle"), createOf(t, d, "idle", "busy")
	run(t, d, busy, "sleep 4777 &")
	run(t, d, idle, "echo kept > kept")
	for begin := time.Now(); inspect(t, e, idle).State.Running; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the idle box is still running")
		}
	}
	if !inspect(t, e, busy).State.Running {
		t.Error("a box with a running process was stopped")
	}
	other := opened(t, e.Host()) // has not just used the boxes, so it asks the engine
	for ref, want := range map[string]bool{idle: true, busy: false} {
		if asleep, err := other.Asleep(t.Context(), ref); asleep != want || err != nil {
			t.Errorf("a box is asleep: %v, %v; want %v", asleep, err, want)
		}
		if meter, err := other.Meter(t.Context(), ref); (meter.Power == sandbox.PowerOff) != want || meter.HourlyMicros != 0 || err != nil {
			t.Errorf("the meter of a box says %+v, %v", meter, err)
		}
	}
	if live, err := d.Probe(t.Context(), idle); live != sandbox.Live || err != nil {
		t.Errorf("%s, %v", live, err)
	}
	if got, _ := run(t, d, idle, "cat kept"); got != "kept\n" {
		t.Errorf("it printed %q", got)
	}
}

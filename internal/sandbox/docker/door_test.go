//go:build linux

package docker_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/docker"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

func TestTheDoorIsReachedFromInside(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	sandboxtest.RunDoor(t, func(t *testing.T) sandbox.Driver { return open(t, e.Host()) })
}

// ask asks the door of a box for its house.
const ask = `exec 3<>/dev/tcp/127.19.0.1/7179 && printf "GET /api/stream/x HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3`

// wantDoor checks that a program in a box of [create] reaches the door.
func wantDoor(t *testing.T, d sandbox.Driver, ref, id string) {
	t.Helper()
	var said strings.Builder
	_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"bash", "-c", ask}, Stdout: &said, Merged: true})
	if want := "house of " + id + ":0:"; err != nil || said.String() != want {
		t.Errorf("the door answers %q, want %q (%v)", said.String(), want, err)
	}
}

func TestADoorKeepsNoIdleBoxRunning(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host(), func(c *docker.Config) { c.IdleStop = 200 * time.Millisecond })
	d.OnDoor(sandboxtest.AnswerDoor)
	ref := createOf(t, d, "idle doors", "idle-door")
	wantDoor(t, d, ref, "idle-door")
	for begin := time.Now(); inspect(t, e, ref).State.Running; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the idle box is still running")
		}
	}
	wantDoor(t, d, ref, "idle-door")
}

func TestADoorOfABoxThatAnotherVersionMade(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "older")
	made, err := e.ExecCreate(t.Context(), ref, client.ExecCreateOptions{User: "0", Cmd: []string{"sh", "-c", "rm /.arbe/keeper-*"}, AttachStdout: true})
	if err != nil {
		t.Fatal(err)
	}
	attached, err := e.ExecAttach(t.Context(), made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = attached.Reader.ReadByte() // it ends with the program
	attached.Close()
	if got, _ := run(t, d, ref, "ls /.arbe"); got != "keeper\n" {
		t.Fatalf("the box has %q", got)
	}
	d.OnDoor(sandboxtest.AnswerDoor)
	wantDoor(t, d, ref, "older")
}

// Two servers use one engine. Either may hold the door of a box.
func TestADoorThatAnotherServerHolds(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	first, second := open(t, e.Host()), opened(t, e.Host())
	first.OnDoor(sandboxtest.AnswerDoor)
	second.OnDoor(sandboxtest.AnswerDoor)
	ref := create(t, first, "shared")
	wantDoor(t, first, ref, "shared")
	wantDoor(t, second, ref, "shared")
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	var said strings.Builder
	_, err := second.Exec(t.Context(), ref, sandbox.Command{
		Argv: []string{"bash", "-c", "until (" + ask + ") 2>/dev/null; do sleep 0.2; done"}, Stdout: &said, Timeout: patience,
	})
	if err != nil || said.String() != "house of shared:0:" {
		t.Errorf("after the first server, the door answers %q (%v)", said.String(), err)
	}
}

func TestNoCommandEndsADoor(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	d.OnDoor(sandboxtest.AnswerDoor)
	ref := create(t, d, "kept-door")
	run(t, d, ref, "kill -9 -1")
	begun, _ := run(t, d, ref, "pgrep -f '^/.arbe/keeper-.* door$'")
	run(t, d, ref, "pkill -9 -f door; kill -9 -1")
	if got, _ := run(t, d, ref, "pgrep -f '^/.arbe/keeper-.* door$'"); got != begun || strings.Count(got, "\n") != 1 {
		t.Errorf("the program of the door was %q and is %q", begun, got)
	}
	wantDoor(t, d, ref, "kept-door")
}

// A server may refuse a request before it has read it.
func TestAProgramReadsAnAnswerThatComesEarly(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	d.OnDoor(func(conn net.Conn, _ sandbox.Labels) {
		_, _ = conn.Write([]byte("too large"))
		conn.Close()
	})
	ref := createOf(t, d, "early answers", "early")
	var said strings.Builder
	_, err := d.Exec(t.Context(), ref, sandbox.Command{
		Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/127.19.0.1/7179 && head -c 1000000 /dev/zero >&3; cat <&3"}, Stdout: &said,
	})
	if err != nil || said.String() != "too large" {
		t.Errorf("it reads %q (%v)", said.String(), err)
	}
}

func TestABoxThatIsStoppedHasItsDoorForTheNextCommand(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	d.OnDoor(sandboxtest.AnswerDoor)
	ref := create(t, d, "door-stopped")
	for range 3 {
		wantDoor(t, d, ref, "door-stopped")
		if _, err := e.ContainerStop(t.Context(), ref, client.ContainerStopOptions{Timeout: new(int)}); err != nil {
			t.Fatal(err)
		}
	}
}

//go:build linux

package remote_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// smallBox is a box with a keeper, whose disk has room for 32 MiB and 150 files.
type smallBox struct {
	*testing.T
	machine  *hostbox.Box
	keeper   remote.Program
	launched int // commands
}

func newSmallBox(t *testing.T) *smallBox {
	machine, err := hostbox.New(t).Create("small")
	if err == nil {
		err = machine.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = machine.Remove() })
	keeper, err := remote.ProgramFor(map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH])
	if err != nil {
		t.Fatal(err)
	}
	b := &smallBox{T: t, machine: machine, keeper: keeper}
	b.run(0, fmt.Sprintf(`mkdir -p %[1]s %[2]s && mount -t tmpfs -o size=32m,nr_inodes=150,mode=700,uid=%[3]d,gid=%[3]d none %[1]s && mount -t tmpfs -o mode=777 none %[2]s`,
		protocol.Root, protocol.SecretFolder, hostbox.User))
	if err := machine.Write(t.Context(), hostbox.User, keeper.Path, bytes.NewReader(keeper.Text)); err != nil {
		t.Fatal(err)
	}
	b.run(hostbox.User, "chmod 755 "+keeper.Path+" && mkdir "+protocol.Records)
	return b
}

// run runs a script without the keeper.
func (b *smallBox) run(uid int, script string) {
	b.Helper()
	cmd, err := b.machine.Command(b.Context(), uid, "/bin/sh", "-c", script)
	if err != nil {
		b.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", script, err, out)
	}
}

// ask sends a request to the keeper.
func (b *smallBox) ask(r protocol.Request) protocol.Reply {
	b.Helper()
	text, err := protocol.EncodeRequest(r)
	if err != nil {
		b.Fatal(err)
	}
	cmd, err := b.machine.Command(b.Context(), hostbox.User, b.keeper.Path)
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	reply, ok := protocol.DecodeReply(out)
	if err != nil || !ok {
		b.Fatalf("the keeper: %v: %s", err, out)
	}
	return reply
}

// command has the keeper run a script to its end, with secrets unless there are none. Its output and exit code must be right. Its
// record stays, so that forgetting it makes no room.
func (b *smallBox) command(script, output string, code int, secrets map[string][]byte) {
	b.Helper()
	b.launched++
	id := fmt.Sprint("x-", b.launched)
	if secrets != nil {
		if reply := b.ask(protocol.Request{Op: protocol.Secrets, ID: id, Secrets: secrets}); reply.Reason != "" {
			b.Fatalf("the secrets of %s: %+v", script, reply)
		}
	}
	reply := b.ask(protocol.Request{
		Op: protocol.Launch, ID: id, Argv: []string{"/bin/sh", "-c", script}, Dir: protocol.Root, Secret: secrets != nil, Wait: time.Minute, Most: 1 << 20,
	})
	for n := len(reply.Records); reply.Reason == "" && (n == 0 || reply.Records[n-1].Kind != "exit"); n = len(reply.Records) {
		data, from := reply.Data, int64(0)
		if n > 0 {
			from = reply.Records[n-1].Next
		}
		reply = b.ask(protocol.Request{Op: protocol.Follow, ID: id, Position: from, Wait: time.Minute, Most: 1 << 20})
		reply.Data = append(data, reply.Data...)
	}
	if reply.Reason != "" {
		b.Fatalf("%s: %+v", script, reply)
	}
	if end := reply.Records[len(reply.Records)-1]; end.ExitCode != code || end.BoxEnded || string(reply.Data) != output {
		b.Fatalf("%s: output %q, end %+v, want %q and the exit code %d", script, reply.Data, end, output, code)
	}
}

// Scripts that use up a disk.
const (
	fillRoom  = `head -c 100M /dev/zero > room 2> /dev/null`
	fillFiles = `{ i=0; while true > file-$i; do i=$((i+1)); done; } 2> /dev/null`
	empty     = `rm -f room file-*`
)

// A command that fills the disk ends as it does, and others can delete files, again and again.
func TestAFullDiskTakesNoCommandAlong(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	for _, fill := range []string{fillRoom, fillFiles, fillRoom, fillFiles} {
		b.command(fill+"; exit 3", "", 3, nil)
		b.command(empty+"; echo emptied > room; cat room; rm room", "emptied\n", 0, nil)
	}
}

// A command is launched although the disk is full, whichever of its files has no room.
func TestACommandIsLaunchedOnAFullDisk(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	secrets := map[string][]byte{"key": []byte("value")}
	round := func(fill string, secrets map[string][]byte) {
		b.Helper()
		b.command("true", "", 0, nil)
		b.run(hostbox.User, "cd "+protocol.Root+"; "+fill+"; true")
		b.command(empty+"; echo emptied", "emptied\n", 0, secrets)
	}
	round(fillRoom, nil)
	for left := range 4 {
		round(fillFiles+strings.Repeat("; rm file-$((i=i-1))", left), nil)
	}
	round(fillFiles, secrets)
	round(fillRoom, secrets) // all guards share files, which are there now
}

package server_test

import (
	"bytes"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// usesElsewhere uses the files and ports of a thread's sandbox through a server that does not reach it.
func usesElsewhere(t *testing.T, here, there server.Config, thread string) {
	c := client(t, there)
	large := bytes.Repeat([]byte("0123456789abcdef"), 100_000) // more than one piece
	output(t, here, thread, "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && echo changed > new && printf 0123456789abcdef%.0s $(seq 100000) > large")
	read := func(path string) (kind, content string, err error) {
		stream, err := c.Sandboxes.ReadSandboxPath(t.Context(), &arbev1.ReadSandboxPathRequest{ThreadId: thread, Path: path})
		if err != nil {
			return "", "", err
		}
		defer stream.Close()
		for stream.Receive() {
			if f := stream.Msg().GetFile(); f != nil {
				kind = f.Kind
			}
			content += string(stream.Msg().GetContent())
		}
		return kind, content, stream.Err()
	}
	if kind, content, err := read("new"); err != nil || kind != "file" || content != "changed\n" {
		t.Errorf("a file is %q, %q, %v", kind, content, err)
	}
	if _, content, err := read("large"); err != nil || content != string(large) {
		t.Errorf("a large file has %d bytes, %v", len(content), err)
	}
	if kind, _, err := read("."); err != nil || kind != "folder" {
		t.Errorf("the working tree is %q, %v", kind, err)
	}
	if _, _, err := read("absent"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a file that is not there: %v", err)
	}
	changes, err := c.Sandboxes.GetSandboxChanges(t.Context(), &arbev1.GetSandboxChangesRequest{ThreadId: thread})
	if err != nil || !strings.Contains(string(changes.Patch), "+changed") {
		t.Errorf("the changes are %.200q, %v", changes.GetPatch(), err)
	}

	if _, err := dialPort(t, c, thread, 3999); arbe.Reason(err) != string(fault.NobodyListens) {
		t.Errorf("a port on which nothing listens: %v", err)
	}
	serveSite(t, here, thread, 3000)
	conn, err := dialPort(t, c, thread, 3000)
	if err != nil {
		t.Fatal(err)
	}
	if got := askSite(t, conn, "/"); got == "" {
		t.Error("the site says nothing")
	}
	if woken, err := c.WakeSandbox(t.Context(), thread, nil); err != nil || woken.SandboxId == "" || woken.Started {
		t.Errorf("waking it: %v, %v", woken, err)
	}
}

package server_test

import (
	"io"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A file that is sent with a message is in the sandbox of its thread when the next command begins: also in the next sandbox, and
// in those of forks and children. No file name leads out of the folder. Nothing that a sandbox does to the folder stops a command.
func TestFilesOfMessagesAreInTheSandbox(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	prints := func(thread, line string) string {
		t.Helper()
		return decode[entry.CommandResult](t, awaitEntry(t, c, thread, run(t, c, thread, line).ResultId)).Output
	}
	send := func(id, name, content string) *arbev1.Entry {
		t.Helper()
		ids, err := c.Attach(t.Context(), thread, id, []arbe.File{{Name: name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content)), nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		said, err := c.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Id: id, Text: "Here.", AttachmentIds: ids})
		if err != nil {
			t.Fatal(err)
		}
		return said.Entry
	}
	path := func(e *arbev1.Entry) string { return decode[entry.Chat](t, e).Attachments[0].InSandbox() }

	prints(thread, "true") // a file that comes after the sandbox is there, too
	plan := path(send("m1", "the plan.txt", "a plan\n"))
	if got := prints(thread, "cat ~/files/the-plan-*.txt; echo "+plan+"; stat -c %a:%U "+plan); got != "a plan\n/home/agent/"+strings.TrimPrefix(plan, "~/")+"\n444:agent\n" {
		t.Errorf("the file is %q", got)
	}
	other := path(send("m2", "the plan.txt", "another\n"))
	escape := path(send("m3", "../../../etc/$(reboot); x", "evil\n"))
	if got := prints(thread, "cat ~/files/the-plan-*.txt | sort; ls ~/files | wc -l; cat "+escape); got != "a plan\nanother\n3\nevil\n" {
		t.Errorf("three files are %q", got)
	}

	fork, err := c.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: thread})
	if err != nil {
		t.Fatal(err)
	}
	child, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: fork.Thread.HouseId, ParentThreadId: thread})
	if err != nil {
		t.Fatal(err)
	}
	for _, near := range []*arbev1.Thread{fork.Thread, child.Thread} {
		if got := prints(near.Id, "cat "+plan); got != "a plan\n" {
			t.Errorf("in a fork or child, the file is %q", got)
		}
	}
	if got := prints(newThread(t, c), "ls ~/files 2>&1"); !strings.Contains(got, "No such file") {
		t.Errorf("another thread has %q", got)
	}

	if got := prints(thread, "rm -f "+plan+"; true"); got != "" {
		t.Errorf("rm says %q", got)
	}
	if got := prints(thread, "test ! -e "+plan+" && rm -rf ~/files && echo > ~/files && echo in the way"); got != "in the way\n" {
		t.Errorf("what was deleted came back: %q", got)
	}
	late := path(send("m4", "late", "late\n"))
	if got := prints(thread, "rm ~/files; echo made room"); got != "made room\n" {
		t.Errorf("with a folder that is in the way, a command says %q", got)
	}

	box, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: box.Thread.SandboxId}); err != nil {
		t.Fatal(err)
	}
	if got := prints(thread, "cat "+plan+" "+other+" "+late); got != "a plan\nanother\nlate\n" {
		t.Errorf("in the next sandbox, the files are %q", got)
	}
}

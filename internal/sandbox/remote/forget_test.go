//go:build linux

package remote_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// The record of a command is deleted by the next request to its box, and by one for that alone if none comes.
func TestTheRecordsOfCommandsGo(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ran := make(chan struct{}, 100) // one for each run of the keeper
	p.after = func([]string) error { ran <- struct{}{}; return nil }
	d := remote.New(p)
	ref, err := d.Create(t.Context(), sandbox.Spec{ID: "records"})
	if err != nil {
		t.Fatal(err)
	}
	exec := func() {
		t.Helper()
		if result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}}); err != nil || result.ExitCode != 0 {
			t.Fatal(result, err)
		}
	}
	inside := func() []string {
		t.Helper()
		machine, err := p.use(ref)
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := machine.Command(t.Context(), hostbox.User, "ls", protocol.Records)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}

	exec()
	for range len(ran) { // also those that prepared the box
		<-ran
	}
	alone := 0
	for range 8 {
		before := len(ran)
		exec()
		if records := inside(); len(records) != 1 {
			t.Errorf("after a command, the box has the records %q, want that command's only", records)
		}
		if len(ran)-before == 1 { // a command that takes longer is followed in another run
			alone++
		}
	}
	if alone == 0 {
		t.Errorf("8 commands take %d runs, want one for each that is short", len(ran))
	}
	for range len(ran) + 1 { // no other command comes
		<-ran
	}
	if records := inside(); len(records) > 0 {
		t.Errorf("without another command, the records %q stay", records)
	}

	exec()
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if records := inside(); len(records) > 0 {
		t.Errorf("a driver that is closed leaves %q", records)
	}
}

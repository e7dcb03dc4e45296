//go:build linux

package dispatch_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/turn"
)

// impatient returns a toolbench whose bot waits only briefly for a command.
func impatient(t *testing.T) *toolbench {
	t.Helper()
	b := &toolbench{next: make(chan modeltest.Call, 1)}
	b.botBench = benchWithBot(database(t), b.model)
	tune := b.tune
	b.tune = func(c *dispatch.Config) { tune(c); c.Foreground(2 * time.Second) }
	b.driver = realBoxes(t)
	b.server = b.serve()
	b.th = b.thread(sandbox.Recipe{})
	return b
}

// lastCommand returns the id of the bot's last command.
func (r *botBench) lastCommand() (id string) {
	for _, e := range r.entries() {
		if e.Type == (entry.Command{}).Type() && e.Author == r.bot {
			id = e.ID
		}
	}
	return id
}

func TestALongCommandGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	b := impatient(t)
	got := b.works(entry.RunCommandTool, args{"command": "echo first; until test -e go; do sleep 0.05; done; echo second; exit 3"})
	id := b.lastCommand()
	if !strings.HasPrefix(got, "first\n[it is still running") || !strings.Contains(got, id) || !strings.Contains(got, "offset 6 ") {
		t.Fatalf("the call returns %q", got)
	}
	if got := b.works(entry.ReadCommandTool, args{"command_id": id, "offset": 2}); !strings.HasPrefix(got, "[from byte 2 of 6]\nrst\n[it is still running") {
		t.Errorf("it reads %q", got)
	}
	b.sh(b.th, "touch go")
	r := b.call(entry.ReadCommandTool, args{"command_id": id, "wait_seconds": 60})
	if !r.IsError || !strings.Contains(r.Text(), "first\nsecond\n[exit 3") {
		t.Errorf("it ends with %q, failed is %v", r.Text(), r.IsError)
	}
	if r := b.call(entry.ReadCommandTool, args{"command_id": id, "offset": 6}); !strings.HasPrefix(r.Text(), "[from byte 6 of 13]\nsecond\n[exit 3") {
		t.Errorf("it reads %q", r.Text())
	}
	// The transcript also has the end of the command.
	list := b.models.Requests()
	var told int
	for _, m := range list[len(list)-1].Messages {
		told += strings.Count(m.Text, "your command "+id+" has ended")
	}
	if told != 1 {
		t.Errorf("the bot is told of the end %d times", told)
	}
	b.fails(entry.ReadCommandTool, args{"command_id": "call1"}, "no such command")
	b.fails(entry.ReadCommandTool, args{"command_id": "nothing"}, "no such command")
}

func TestABackgroundCommandOutlivesItsTurnAndCanBeStopped(t *testing.T) {
	t.Parallel()
	b := impatient(t)
	if got := b.works(entry.RunCommandTool, args{"command": "echo serving; touch up; sleep 600", "background": true}); !strings.Contains(got, "is running in the background as the command "+b.lastCommand()) {
		t.Fatalf("the call returns %q", got)
	}
	id := b.lastCommand()
	b.sh(b.th, "until test -e up; do sleep 0.05; done")
	if n := b.results(b.th, id); n != 0 {
		t.Fatal("the command ended with its turn")
	}
	if got := b.works(entry.StopCommandTool, args{"command_id": id}); !strings.Contains(got, "serving") {
		t.Errorf("stopping it returns %q", got)
	}
	if r := b.result(b.th, id); !r.Cancelled || r.CancelledBy != b.bot {
		t.Errorf("it ended with %+v", r)
	}
	theirs := b.ask(b.th, "sleep 600")
	b.fails(entry.StopCommandTool, args{"command_id": theirs}, "somebody else")
	b.cancel(b.th, theirs)
	// A command of another thread is out of reach.
	other := b.conversation()
	text, _ := json.Marshal(args{"command_id": id})
	for _, tool := range []string{entry.ReadCommandTool, entry.StopCommandTool} {
		_, err := b.dispatcher.RunTool(t.Context(), tool, turn.Call{Scope: db.Scope{House: b.scope.House, Agent: b.bot}, Thread: other, ID: "x", Arguments: text})
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s in another thread: %s", tool, detail(err))
		}
	}
}

func TestStoppingATurnStopsItsCommands(t *testing.T) {
	t.Parallel()
	r := sandboxBench(t, func(q *modeltest.Request) modeltest.Reply {
		command := `{"command":"sleep 600","background":true}`
		if q.Last().Role == "tool" {
			command = `{"command":"echo waits; sleep 600"}`
		}
		return modeltest.Reply{Calls: []modeltest.Call{{Name: entry.RunCommandTool, Arguments: command}}}
	})
	r.says("q", "@bot go")
	r.until(func(e entry.Entry) bool { return strings.HasSuffix(e.ID, ".2.call0.run") })
	if _, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.th, ""); err != nil {
		t.Fatal(detail(err))
	}
	r.end("q")
	for _, e := range r.entries() {
		if e.Type == (entry.Command{}).Type() {
			if got := r.result(r.th, e.ID); !got.Cancelled {
				t.Errorf("%s ended with %+v", e.ID, got)
			}
		}
	}
}

// Output can be read from any offset, however little of it is kept.
func TestALargeOutputIsReadInParts(t *testing.T) {
	t.Parallel()
	b := impatient(t)
	b.works(entry.RunCommandTool, args{"command": "seq 1 200000; sleep 600", "background": true})
	id := b.lastCommand()
	b.printed(b.th, id, "\n200000\n")
	if got := b.works(entry.ReadCommandTool, args{"command_id": id, "offset": 0}); !strings.HasPrefix(got, "1\n2\n3\n") || !strings.Contains(got, "with offset 40960 ") {
		t.Errorf("the beginning is %.40q … %.200q", got, got[max(0, len(got)-200):])
	}
	if got := b.works(entry.ReadCommandTool, args{"command_id": id}); !strings.Contains(got, "\n199999\n200000\n[it is still running") || len(got) > 48<<10 {
		t.Errorf("the end is %.200q", got[max(0, len(got)-200):])
	}
	if got := b.works(entry.ReadCommandTool, args{"command_id": id, "offset": 1 << 40}); !strings.HasPrefix(got, "[it is still running") {
		t.Errorf("beyond the end it reads %.100q", got)
	}
	b.works(entry.StopCommandTool, args{"command_id": id})
}

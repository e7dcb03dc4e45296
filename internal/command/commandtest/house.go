// Package commandtest supports tests of commands: a house that requests them, the real sandboxes of this machine, and a
// driver whose commands end when the test says so.
package commandtest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Patience limits the wait for something that must happen. Compiling in a sandbox takes the longest.
const Patience = 5 * time.Minute

// House is a house that requests commands from a server. Its methods end the test if something fails.
type House struct {
	T        testing.TB
	Scope    db.Scope
	Log      *stream.Log
	Threads  *thread.Threads
	Boxes    *sandbox.Resolver
	Commands *command.Commands
}

// Thread creates a thread with an environment of its own.
func (h House) Thread(recipe sandbox.Recipe) string {
	h.T.Helper()
	env, err := h.Boxes.CreateEnvironment(h.T.Context(), h.Scope, "an environment", recipe)
	if err != nil {
		h.T.Fatal(Detail(err))
	}
	th, err := h.Threads.Create(h.T.Context(), h.Scope, thread.Draft{Environment: env.ID})
	if err != nil {
		h.T.Fatal(Detail(err))
	}
	return th.ID
}

// Sh runs a line of shell in a thread and waits for its end.
func (h House) Sh(thread, line string) entry.CommandResult {
	h.T.Helper()
	return h.Result(thread, h.Ask(thread, line))
}

// Ask asks for a line of shell in a thread, and returns the command's id.
func (h House) Ask(thread, line string) string {
	h.T.Helper()
	return h.AskFor(thread, "", entry.Command{Command: line})
}

// AskFor asks for a command under an id, and returns the id. If it is empty, an id is generated.
func (h House) AskFor(thread, id string, c entry.Command) string {
	h.T.Helper()
	said, err := h.Commands.Run(h.T.Context(), h.Scope, thread, id, c)
	if err != nil {
		h.T.Fatal(Detail(err))
	}
	return said.ID
}

// Cancel interrupts a command.
func (h House) Cancel(thread, commandID string) {
	h.T.Helper()
	if err := h.Commands.Cancel(h.T.Context(), h.Scope, thread, commandID, command.Interrupt); err != nil {
		h.T.Fatal(Detail(err))
	}
}

// Result waits for the end of a command.
func (h House) Result(thread, commandID string) entry.CommandResult {
	h.T.Helper()
	events := h.Follow(thread, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID) })
	last := *events[len(events)-1].Entry
	r, ok := entry.As[entry.CommandResult](last)
	if !ok {
		h.T.Fatalf("the result is a %s", last.Type)
	}
	return r
}

// Printed waits until a command has printed a text, live.
func (h House) Printed(thread, commandID, text string) {
	h.T.Helper()
	var live strings.Builder
	h.Follow(thread, func(ev stream.Event) bool {
		if ev.Delta != nil && ev.Delta.EntryID == entry.ResultID(commandID) {
			live.Write(ev.Delta.Data)
		}
		return strings.Contains(live.String(), text)
	})
}

// Results returns how many results of a command the log has.
func (h House) Results(thread, commandID string) (n int) {
	h.T.Helper()
	for _, e := range h.Entries(thread) {
		if r, ok := entry.As[entry.CommandResult](e); ok && r.CommandID == commandID {
			n++
		}
	}
	return n
}

// Follow tails a thread's log from its beginning until an event that the test waits for, and returns the events.
func (h House) Follow(thread string, is func(stream.Event) bool) (events []stream.Event) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), Patience)
	defer cancel()
	for ev, err := range h.Log.Tail(ctx, h.Ref(thread), 0) {
		if err != nil {
			h.T.Fatalf("following: %s", Detail(err))
		}
		if events = append(events, ev); is(ev) {
			return events
		}
	}
	h.T.Fatalf("the event did not come; the log has %s", h.Story(thread))
	return nil
}

// Story returns a thread's log as text.
func (h House) Story(thread string) string {
	h.T.Helper()
	text, _ := json.Marshal(h.Entries(thread))
	return string(text)
}

// Entries returns a thread's log.
func (h House) Entries(thread string) (all []entry.Entry) {
	h.T.Helper()
	for after := int64(0); ; after = all[len(all)-1].Seq {
		page, _, err := h.Log.Read(h.T.Context(), h.Ref(thread), stream.Range{After: after, Limit: 1000})
		if err != nil {
			h.T.Fatal(Detail(err))
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

// Ref returns the name of a thread's log.
func (h House) Ref(threadID string) stream.Ref {
	return stream.Ref{House: h.Scope.House, Name: thread.StreamName(threadID)}
}

// Readable waits until a command has output to read, without taking any.
func (h House) Readable(thread, commandID string) {
	h.T.Helper()
	for {
		r, err := h.Commands.Read(h.T.Context(), h.Scope, thread, commandID, 0, command.Reader{Intent: command.ReadOn})
		if err != nil {
			h.T.Fatal(Detail(err))
		}
		if len(r.Pieces) > 0 {
			return
		}
	}
}

// NewHouse adds a house to the database, and its owner.
func NewHouse(t testing.TB, owner *pgx.Conn) (scope db.Scope) {
	t.Helper()
	err := owner.QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&scope.House, &scope.Agent)
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

// Detail returns the text of an error, including details that people are not shown.
func Detail(err error) string {
	if err == nil {
		return "no error"
	}
	return fault.From(err).Detail()
}

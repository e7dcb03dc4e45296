package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starfederation/datastar-go/datastar"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
	"github.com/arbe-dev/arbe/web/terminal"
	"github.com/arbe-dev/arbe/web/transcript"
)

const (
	// shellKind is the kind of terminal that package terminal emulates.
	shellKind = "xterm-256color"
	// searchedForShells is how many commands and results of a thread are searched for terminals.
	searchedForShells = 1000
	// ttyEvery is the least time between two events of a terminal, and ttyBytes limits their bytes in a second.
	ttyEvery, ttyBytes = 33 * time.Millisecond, 512 << 10
	// screenEvent is the type of the events of a terminal.
	screenEvent datastar.EventType = "screen"
)

func (a *app) ttyKeyOf(r *http.Request) ttyKey {
	return ttyKey{a.sessionOf(r), r.PathValue("thread"), r.PathValue("command")}
}

// terminals returns the latest commands of a thread that have a terminal, oldest first. ended has those that do not run.
func (a *app) terminals(ctx context.Context, thread string) (commands []*arbev1.Entry, ended map[string]entry.CommandResult, err error) {
	got, err := a.services.entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, Last: true, Limit: searchedForShells, Types: []string{"command", "command_result"}})
	if err != nil {
		return nil, nil, err
	}
	ended = map[string]entry.CommandResult{}
	for _, e := range got.GetEntries() {
		switch p, _ := entry.Decode(transcript.Entry(e)); p := p.(type) {
		case entry.CommandResult:
			ended[p.CommandID] = p
		case entry.Command:
			if p.Terminal != nil {
				commands = append(commands, e)
			}
		}
	}
	return commands, ended, nil
}

// terminal shows a terminal of the thread's sandbox, or offers to open one. It starts nothing, because pages of other hosts may
// link here.
func (a *app) terminal(w http.ResponseWriter, r *http.Request) error {
	got, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	v := ttyView{Thread: got.Thread, Command: r.URL.Query().Get("command")}
	if v.Layout, err = a.layoutOf(r, got.Thread.HouseId, got.Thread.Id); err != nil {
		return err
	}
	if v.Workplace, err = a.sandboxOf(r.Context(), got.Thread, v.Layout.House); err != nil {
		return err
	}
	commands, ended, err := a.terminals(r.Context(), got.Thread.Id)
	if err != nil {
		return err
	}
	found := v.Command == ""
	for _, e := range commands {
		result, over := ended[e.Id]
		if e.Id == v.Command {
			found = true
			if over {
				v.Ended = shellEnd(result)
			}
		}
		if !over {
			v.Shells = append(v.Shells, shellTab{ID: e.Id, Name: shellName(e, len(v.Shells)+1)})
		}
	}
	if !found {
		return fault.New(fault.NotFound, "the thread has no such terminal", "open another one")
	}
	return a.show(w, r, http.StatusOK, ttyPage(v))
}

// openTerminal shows the terminal that runs in the thread's sandbox. If none does, or another one is wanted, it starts a shell.
func (a *app) openTerminal(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	thread := r.PathValue("thread")
	if r.PostFormValue("another") == "" {
		commands, ended, err := a.terminals(r.Context(), thread)
		if err != nil {
			return err
		}
		for i := len(commands) - 1; i >= 0; i-- {
			if _, over := ended[commands[i].Id]; !over {
				http.Redirect(w, r, terminalPath(thread, commands[i].Id), http.StatusSeeOther)
				return nil
			}
		}
	}
	res, err := a.services.threads.RunCommand(r.Context(), &arbev1.RunCommandRequest{
		ThreadId: thread, Id: newID(), What: &arbev1.RunCommandRequest_Command{Command: shellLine},
		Terminal: &arbev1.Terminal{Size: &arbev1.TerminalSize{Rows: 24, Columns: 80}, Kind: shellKind},
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, terminalPath(thread, res.Entry.Id), http.StatusSeeOther)
	return nil
}

// followTerminal sends a terminal's screen, and what changes in it, until the tab leaves or the terminal ends.
func (a *app) followTerminal(w http.ResponseWriter, r *http.Request) error {
	if !fromScript(r) { // pages of other hosts may link here, and it would take the terminal from another reader
		return fault.New(fault.NotFound, "this is no page", "go to the thread")
	}
	key := a.ttyKeyOf(r)
	rows, _ := strconv.Atoi(r.URL.Query().Get("rows"))
	columns, _ := strconv.Atoi(r.URL.Query().Get("columns"))
	if rows < 1 || columns < 1 {
		rows, columns = 24, 80
	}
	rows, columns = terminal.Limit(rows, columns)
	command, err := a.terminalEntry(r.Context(), key)
	if err != nil {
		return err
	}
	leave, err := a.following.enter(key.session, 1)
	if err != nil {
		return err
	}
	defer leave()
	t, left, err := a.ttys.join(key, func() *tty { return a.openTTY(r.Context(), key, command, rows, columns) })
	if err != nil {
		return err
	}
	defer left()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c, err := newLiveConn(w, r, cancel)
	if err != nil {
		return nil // the reader left
	}
	t.resize(rows, columns)
	beat := guard.Background(func() error { return c.beat(ctx) })
	t.follow(ctx, c, seenFrom(r.URL.Query().Get("seen")))
	cancel()
	<-beat
	return nil
}

// follow sends frames until ctx or the tty ends.
func (t *tty) follow(ctx context.Context, c *liveConn, seen ttySeen) {
	for {
		f, changed := t.frame(&seen)
		text, err := json.Marshal(f)
		if err != nil {
			return
		}
		c.write(screenEvent, string(text))
		if f.End != nil {
			return
		}
		select {
		case <-time.After(max(ttyEvery, time.Duration(len(text))*time.Second/ttyBytes)):
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-t.ctx.Done():
			if !t.ended() {
				return // the tab connects again
			}
		}
	}
}

// terminalEntry returns the entry of a command with a terminal.
func (a *app) terminalEntry(ctx context.Context, key ttyKey) (*arbev1.Entry, error) {
	commands, _, err := a.terminals(ctx, key.thread)
	if err != nil {
		return nil, err
	}
	for _, e := range commands {
		if e.Id == key.command {
			return e, nil
		}
	}
	return nil, fault.New(fault.NotFound, "the thread has no such terminal", "open another one")
}

// seenFrom reads the cursor of a tab. A cursor that is not valid is that of an empty page.
func seenFrom(text string) (s ttySeen) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return s
	}
	main, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return s
	}
	other, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return s
	}
	return ttySeen{parts[0], terminal.Seen{Main: main, Other: other}}
}

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// entryPrinter prints the entries of one thread: as one JSON object a line, as ids, or as text for people.
type entryPrinter struct {
	app    *app
	client *arbe.Client
	thread string

	house string             // the thread's house; known once a name was looked up
	names map[string]string  // the names of agents
	live  map[string]*output // the output of running commands, by the id that their result will have

	// writes is the turn, if any, whose text is shown while it is written. Only one turn is shown, because the texts of
	// several would mix. draft is the text so far.
	writes string
	draft  arbe.Draft

	midLine bool // the live output has not ended its line
	builds  bool // the line shows a step of the preparation of a sandbox, which the next output replaces
}

func (p *entryPrinter) entry(ctx context.Context, e *arbev1.Entry) (err error) {
	switch {
	case p.app.json:
		return p.app.printJSON(export.ViewEntry(e))
	case p.app.quiet:
		_, err = fmt.Fprintln(p.app.out, e.GetId())
	default:
		text := plain(e)
		if shown := p.live[e.GetId()]; shown != nil {
			delete(p.live, e.GetId())
			if text, err = finish(shown, e); err != nil {
				return err
			}
		} else if text, err = p.step(e, text); err != nil {
			return err
		}
		if reactions := export.Reactions(e.GetState()); reactions != "" {
			text = strings.TrimRight(text, "\n") + "\n[" + reactions + "]"
		}
		p.endLine()
		_, err = fmt.Fprintf(p.app.out, "%s\n%s\n\n", p.app.dim(p.head(ctx, e)), entry.Printable(strings.TrimRight(text, "\n")))
	}
	return err
}

// head returns the line above an entry: its position, author, time and, unless it is a chat, its type.
func (p *entryPrinter) head(ctx context.Context, e *arbev1.Entry) string {
	head := fmt.Sprintf("#%d  %s  %s", e.GetSeq(), entry.PrintableLine(p.author(ctx, e.GetAuthorAgentId())), p.app.when(e.GetTs().AsTime()))
	if became := e.GetState(); became.GetText() != "" {
		head += "  edited"
	}
	if e.GetType() != (entry.Chat{}).Type() {
		head += "  " + entry.PrintableLine(e.GetType())
	}
	return head
}

// delta shows a person a piece of the output of a running command. Programs get only the log, because deltas may be missed or
// repeated.
func (p *entryPrinter) delta(d *arbev1.Delta) error {
	if p.app.json || p.app.quiet {
		return nil
	}
	if turn := arbe.TurnOf(d); turn != "" {
		return p.written(turn, d)
	}
	if _, is := entry.PreparedSandbox(d.GetEntryId()); is {
		return p.built(d)
	}
	shown := p.live[d.GetEntryId()]
	if shown == nil {
		shown = &output{out: liveWriter{p}, missed: func(bytes int64) { p.app.say("… %d bytes left out …", bytes) }}
		if p.live == nil {
			p.live = map[string]*output{}
		}
		p.live[d.GetEntryId()] = shown
	}
	return shown.delta(d)
}

// built shows which step the preparation of a sandbox has reached, in a line of a terminal that the next output replaces. The log
// gets the whole output of the preparation.
func (p *entryPrinter) built(d *arbev1.Delta) error {
	if !isTerminal(p.app.out) {
		return nil
	}
	for _, step := range entry.BootSteps(d.GetData()) {
		p.endLine()
		if _, err := io.WriteString(p.app.out, p.app.dim(entry.Printable(step)+" …")); err != nil {
			return err
		}
		p.builds = true
	}
	return nil
}

// written shows a piece of a bot's text.
func (p *entryPrinter) written(turn string, d *arbev1.Delta) error {
	if p.writes == "" {
		p.writes, p.draft = turn, arbe.Draft{}
	} else if p.writes != turn {
		return nil
	}
	text, again := p.draft.Add(d)
	if again {
		p.endLine()
	}
	_, err := liveWriter{p}.Write([]byte(text))
	return err
}

// step returns the part of an entry's text that was not shown while a bot wrote it, and shows the rest.
func (p *entryPrinter) step(e *arbev1.Entry, text string) (string, error) {
	turn, wrote, foot := "", "", ""
	payload, _ := export.Decode(e)
	switch s := payload.(type) {
	case entry.PiAssistant:
		turn, wrote = s.Turn, s.Text()
		s.Content = s.Calls()
		foot = s.Plain()
	case entry.Chat:
		if s.Turn == nil {
			return text, nil
		}
		turn, wrote, foot = s.Turn.TurnID, s.Text, "["+s.Turn.Foot()+"]"
		text += "\n" + foot
	case entry.TurnEnded:
		if s.Summary != nil {
			text += "\n[" + s.Summary.Foot() + "]"
		}
		if turn = s.TurnID; p.writes == turn {
			p.writes = ""
		}
		return text, nil
	default:
		return text, nil
	}
	if p.writes == "" || p.writes != turn {
		return text, nil
	}
	draft := p.draft
	p.writes, p.draft = "", arbe.Draft{}
	rest, again := draft.Rest(wrote)
	if again || !draft.Begun() {
		return text, nil
	}
	_, err := liveWriter{p}.Write([]byte(rest))
	return foot, err
}

// endLine ends the line of live output, and removes a step of a preparation.
func (p *entryPrinter) endLine() {
	if p.builds {
		io.WriteString(p.app.out, "\r\x1b[K")
		p.builds = false
	}
	if p.midLine {
		fmt.Fprintln(p.app.out)
		p.midLine = false
	}
}

// finish shows the rest of a command's output, and returns the text about the command's end.
func finish(shown *output, result *arbev1.Entry) (string, error) {
	p, _ := export.Decode(result)
	r, ok := p.(entry.CommandResult)
	if !ok {
		return plain(result), nil
	}
	return strings.TrimPrefix(r.Error+"\n["+r.Outcome()+"]", "\n"), shown.rest(r)
}

// liveWriter prints a command's output, after [entry.Printable] has made it safe.
type liveWriter struct{ *entryPrinter }

func (w liveWriter) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if w.builds {
		w.endLine()
	}
	w.midLine = !strings.HasSuffix(string(text), "\n")
	_, err := io.WriteString(w.app.out, entry.Printable(string(text)))
	return len(text), err
}

// author returns the name of an entry's author. If the name cannot be read it returns the id, because a log is worth printing
// without names too.
func (p *entryPrinter) author(ctx context.Context, id string) string {
	if id == "" {
		return "arbe"
	}
	if name, known := p.names[id]; known {
		return name
	}
	if p.names == nil {
		p.names = map[string]string{}
		found, _ := p.client.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: p.thread})
		p.house = found.GetThread().GetHouseId()
	}
	found, _ := p.client.Agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: p.house, Id: id})
	p.names[id] = first(found.GetAgent().GetName(), id)
	return p.names[id]
}

// plain returns an entry in plain words. For an unknown kind it returns the payload, because a newer server may have written
// it.
func plain(e *arbev1.Entry) string {
	p, ok := export.Decode(e)
	if asked, is := p.(entry.PermissionAsked); is {
		return strings.Join(export.Asked(asked, "the bot"), "\n")
	}
	if ok {
		return p.Plain()
	}
	return e.GetPayload()
}

package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// shape is how loud an entry is.
type shape int

const (
	// said: a row with its author's head, for what somebody said or did.
	said shape = iota
	// noted: one small grey line, for what arbe tells about itself.
	noted
)

// kind is how one kind of entry becomes HTML.
type kind struct {
	shape shape
	// body renders an entry; nil is an entry that shows elsewhere, as a command's result does in the
	// command's block.
	body func(*transcript, entry.Entry) templ.Component
}

// kinds is how every known kind of entry is shown. One that is not here is shown generically.
var kinds = map[string]kind{
	"chat":                         show(said, chat),
	"command":                      show(said, command),
	"command_result":               show(noted, commandResult),
	"sandbox_resumed":              show(noted, plainly[entry.SandboxResumed]("box")),
	"signal.thread.status_changed": show(noted, statusChanged),
	"signal.thread.forked":         show(noted, forked),
	"signal.house.created":         show(noted, plainly[entry.HouseCreated]("house")),
	"signal.environment.prepared":  show(noted, prepared),
}

// show makes a kind of a function that takes the payload it is about. A payload that is not what its kind
// says is shown generically too.
func show[P entry.Payload](s shape, body func(*transcript, entry.Entry, P) templ.Component) kind {
	return kind{s, func(t *transcript, e entry.Entry) templ.Component {
		p, ok := entry.As[P](e)
		if !ok {
			return unknown(e)
		}
		return body(t, e, p)
	}}
}

func kindOf(e entry.Entry) kind {
	if k, ok := kinds[e.Type]; ok {
		return k
	}
	return kind{said, func(_ *transcript, e entry.Entry) templ.Component { return unknown(e) }}
}

// maxShown is how much of a text a page shows before it is asked for more, in bytes.
const maxShown = 12 << 10

func chat(t *transcript, e entry.Entry, c entry.Chat) templ.Component {
	text, rest := c.Text, 0
	if len(text) > maxShown && !t.whole {
		text = clip(text, maxShown)
		rest = len(c.Text) - len(text)
	}
	return chatBody(t.thread, e.Seq, templ.Raw(markdown(text)), rest)
}

// commandView is a command with what is known of its end.
type commandView struct {
	Thread, ID, Line string
	// Key names the block in the page. Ids are their writers' own, so they are not used as such.
	Key     string
	Seq     int64
	Started time.Time
	// Result is nil while it runs; ResultSeq is where it is in the log.
	Result    *entry.CommandResult
	ResultSeq int64
	// Cut is set when the thread was forked before it ended: how it ends is told in the source alone.
	Cut *arbev1.Origin
	// Whole shows all of the output that the log has.
	Whole bool
}

func blockKey(commandID string) string {
	sum := sha256.Sum256([]byte(commandID))
	return "c" + hex.EncodeToString(sum[:8])
}

func command(t *transcript, e entry.Entry, c entry.Command) templ.Component {
	v := commandView{Thread: t.thread, ID: e.ID, Key: blockKey(e.ID), Seq: e.Seq, Line: c.Line(), Started: e.Time, Whole: t.whole}
	if end, ok := t.ends[e.ID]; ok {
		v.Result, v.ResultSeq = &end.result, end.seq
	} else if e.Seq <= t.origin.GetSeq() {
		v.Cut = t.origin
	}
	return commandBlock(v)
}

// commandResult shows nothing right behind its command, whose block has it; further down the thread it is
// a line that leads there.
func commandResult(t *transcript, e entry.Entry, r entry.CommandResult) templ.Component {
	start, known := t.starts[r.CommandID]
	if known && start.seq == t.lastSaid {
		return nil
	}
	return resultLine(t.thread, e.Seq, start, r)
}

func statusChanged(_ *transcript, _ entry.Entry, s entry.StatusChanged) templ.Component {
	return noteLine(statusOf(s.To).Class, "s-"+statusOf(s.To).Class, s.Plain())
}

// forked leads to where the thread was forked from, if it is this very fork that it tells of.
func forked(t *transcript, _ entry.Entry, f entry.Forked) templ.Component {
	if t.origin.GetThreadId() != f.ThreadID || f.ThreadID == "" {
		return noteLine("", "fork", f.Plain())
	}
	return forkLine(f)
}

func plainly[P entry.Payload](icon string) func(*transcript, entry.Entry, P) templ.Component {
	return func(_ *transcript, _ entry.Entry, p P) templ.Component { return noteLine("", icon, p.Plain()) }
}

func prepared(_ *transcript, _ entry.Entry, p entry.EnvironmentPrepared) templ.Component {
	step, failed := p.Failed()
	if !failed {
		return noteLine("", "box", p.Plain())
	}
	return preparationFailed(step, screenEnd(step.Output, foldedLines))
}

// unknown shows any entry: its type, and what it says as JSON.
func unknown(e entry.Entry) templ.Component {
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, e.Payload, "", "  "); err != nil {
		pretty.Reset()
		pretty.Write(e.Payload)
	}
	return genericBody(e.Type, clip(pretty.String(), maxShown))
}

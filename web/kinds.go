package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// shape is how prominent an entry is.
type shape int

const (
	// said is a row with its author's name, for what a person or a bot said or did.
	said shape = iota
	// noted is one small grey line, for what arbe reports.
	noted
)

// kind is how one kind of entry becomes HTML.
type kind struct {
	shape shape
	// body renders an entry. It returns nil for an entry that is shown elsewhere, such as a result in its command's
	// block.
	body func(context.Context, *transcript, entry.Entry) templ.Component
}

// kinds has all known kinds of entries, by type. An unknown one is shown as JSON.
var kinds = map[string]kind{
	"chat":                            show(said, chat),
	"command":                         show(said, command),
	"command_result":                  show(noted, commandResult),
	"sandbox_resumed":                 show(noted, plainly[entry.SandboxResumed]("box")),
	"signal.thread.status_changed":    show(noted, statusChanged),
	"signal.thread.forked":            show(noted, forked),
	"signal.house.created":            show(noted, plainly[entry.HouseCreated]("house")),
	"signal.house.invited":            show(noted, plainly[entry.Invited]("house")),
	"signal.house.invite_revoked":     show(noted, plainly[entry.InviteRevoked]("house")),
	"signal.house.member_joined":      show(noted, plainly[entry.MemberJoined]("house")),
	"signal.house.member_removed":     show(noted, plainly[entry.MemberRemoved]("house")),
	"signal.house.role_changed":       show(noted, plainly[entry.RoleChanged]("house")),
	"signal.house.bot_created":        show(noted, plainly[entry.BotCreated]("house")),
	"signal.house.bot_changed":        show(noted, plainly[entry.BotChanged]("house")),
	"signal.environment.prepared":     show(noted, prepared),
	"signal.dispatch.command_waiting": show(noted, plainly[entry.CommandWaiting]("s-waiting")),
	"signal.dispatch.turn_started":    show(noted, turnStarted),
	"signal.dispatch.turn_steered":    show(noted, turnSteered),
	"signal.dispatch.turn_waiting":    show(noted, aboutBot[entry.TurnWaiting]),
	"signal.dispatch.turn_ended":      show(noted, turnEnded),
	"signal.dispatch.turn_fell_back":  show(noted, aboutBot[entry.TurnFellBack]),
	"signal.dispatch.limit_near":      show(noted, aboutBot[entry.LimitNear]),
	"signal.dispatch.skipped":         show(noted, skipped),
	"signal.permission.asked":         show(noted, permissionAsked),
	"signal.permission.answered":      show(noted, permissionAnswered),
	"pi.assistant":                    show(said, step),
	"pi.tool_result":                  show(said, toolResult),
	"pi.compaction":                   show(said, compaction),
}

// show returns the kind of a payload type. A payload that cannot be decoded as that type is shown as JSON instead of an
// error.
func show[P entry.Payload](s shape, body func(context.Context, *transcript, entry.Entry, P) templ.Component) kind {
	return kind{s, func(ctx context.Context, t *transcript, e entry.Entry) templ.Component {
		p, ok := entry.As[P](e)
		if !ok {
			return unknown(e)
		}
		return body(ctx, t, e, p)
	}}
}

func kindOf(e entry.Entry) kind {
	if k, ok := kinds[e.Type]; ok {
		return k
	}
	return kind{said, func(_ context.Context, _ *transcript, e entry.Entry) templ.Component { return unknown(e) }}
}

const (
	// maxShown is how much of a text a page shows at first, in bytes.
	maxShown = 12 << 10
	// maxLines is how many lines of a chat a page shows at first. Of a chat that exceeds one of the two, it shows at most
	// foldedText bytes and markup.FoldedLines lines.
	maxLines, foldedText = 200, 2 << 10
	// maxNote limits the text of a note, and maxWord a name in it, in bytes.
	maxNote, maxWord = 2 << 10, 200
)

func chat(ctx context.Context, t *transcript, e entry.Entry, c entry.Chat) templ.Component {
	text, rest := c.Text, 0
	if !t.whole && (len(text) > maxShown || strings.Count(text, "\n") > maxLines) {
		text = beginning(text)
		rest = len(c.Text) - len(text)
	}
	return chatBody(t.thread, e.Seq, templ.Raw(markup.Markdown(text, t.effort)), rest, t.filesOf(ctx, c), t.answerOf(e, c))
}

// beginning returns the beginning of a long text, of whole lines if possible.
func beginning(text string) string {
	lines := strings.SplitAfterN(text, "\n", markup.FoldedLines+1)
	text = strings.Join(lines[:min(len(lines), markup.FoldedLines)], "")
	if len(text) <= foldedText {
		return text
	}
	if end := strings.LastIndexByte(text[:foldedText], '\n'); end > 0 {
		return text[:end+1]
	}
	return clip(text, foldedText)
}

// commandView is a command, with its result if it has ended.
type commandView struct {
	Thread, ID, Line string
	// Key is the block's id in the page. The entry's id is not used for it, because its writer may choose any text.
	Key string
	// LineCut reports that Line is only the beginning.
	LineCut bool
	Seq     int64
	Started time.Time
	// Result is nil while the command runs. ResultSeq is its position in the log.
	Result    *entry.CommandResult
	ResultSeq int64
	// Outcome says how it ended.
	Outcome string
	// Cut is set when the thread was forked before the command ended. The command then does not show as running,
	// because only the source gets its result.
	Cut *arbev1.Origin
	// Build is the build of the sandbox that the command waited for; nil if the sandbox existed. EnvironmentPath leads to
	// the page where the recipe is changed.
	Build           *entry.EnvironmentPrepared
	EnvironmentPath string
	// OtherSandbox reports that the command before it ran in another sandbox.
	OtherSandbox bool
	// Whole shows all of the output that the log has.
	Whole bool
}

func blockKey(commandID string) string {
	sum := sha256.Sum256([]byte(commandID))
	return "c" + hex.EncodeToString(sum[:8])
}

func command(_ context.Context, t *transcript, e entry.Entry, c entry.Command) templ.Component {
	v := commandView{Thread: t.thread, ID: e.ID, Key: blockKey(e.ID), Seq: e.Seq, Line: c.Line(), Started: e.Time, Whole: t.whole}
	t.describe(&v, c.EnvironmentID)
	if result, seq, ended := t.ended(e.ID); ended {
		v.Result, v.ResultSeq, v.OtherSandbox = &result, seq, t.otherSandbox(result)
		v.Outcome = t.outcome(result)
	} else if e.Seq <= t.origin.GetSeq() {
		v.Cut = t.origin
	}
	if !v.Whole && len(v.Line) > maxShown {
		v.Line, v.LineCut = clip(v.Line, maxShown), true
	}
	return commandBlock(v)
}

// describe adds the build that a command waited for. environment is the id of the environment that the command names.
func (t *transcript) describe(v *commandView, environment string) {
	if build, ok := entry.Latest[entry.EnvironmentPrepared](t.ledger.Of(entry.CommandWork, v.ID)); ok {
		v.Build = &build
	}
	v.EnvironmentPath = settingsPath(t.house, "environments")
	if id := cmp.Or(environment, t.environment); id != "" {
		v.EnvironmentPath = environmentPath(id)
	}
}

// BuildFailed reports whether the command did not run because the build of its sandbox failed. The page then shows the
// failed step, and does not repeat its error.
func (v commandView) BuildFailed() bool {
	if v.Build == nil {
		return false
	}
	_, failed := v.Build.Failed()
	return failed
}

// otherSandbox remembers where a command ran, and reports whether the one before it ran elsewhere.
func (t *transcript) otherSandbox(r entry.CommandResult) bool {
	last := t.lastSandbox
	if r.SandboxID != "" {
		t.lastSandbox = r.SandboxID
	}
	return last != "" && r.SandboxID != "" && r.SandboxID != last
}

// commandResult shows nothing directly behind its command, because the command's block shows the result. Further down it is a
// line that leads to the command.
func commandResult(_ context.Context, t *transcript, e entry.Entry, r entry.CommandResult) templ.Component {
	start, line := t.started(r.CommandID)
	// A bot may run several commands at once, whose results would otherwise be mixed up.
	if start > 0 && (start == t.lastSaid || entry.TurnOf(r.CommandID) != "") {
		return nil
	}
	return resultLine(t.thread, e.Seq, start, line, outcomeClass(&r), t.outcome(r))
}

func statusChanged(_ context.Context, _ *transcript, _ entry.Entry, s entry.StatusChanged) templ.Component {
	return noteLine(statusOf(s.To).Class, "s-"+statusOf(s.To).Class, clip(s.Plain(), maxNote))
}

// forked leads to where the thread was forked from, if the entry is about this fork. It may be about another, because a
// fork of a fork has the entries of both.
func forked(_ context.Context, t *transcript, _ entry.Entry, f entry.Forked) templ.Component {
	if t.origin.GetThreadId() != f.ThreadID || f.ThreadID == "" {
		return noteLine("", "fork", clip(f.Plain(), maxNote))
	}
	return forkLine(f)
}

func plainly[P entry.Payload](icon string) func(context.Context, *transcript, entry.Entry, P) templ.Component {
	return func(_ context.Context, _ *transcript, _ entry.Entry, p P) templ.Component {
		return noteLine("", icon, clip(p.Plain(), maxNote))
	}
}

// prepared shows nothing if its command's block shows the build.
func prepared(_ context.Context, t *transcript, e entry.Entry, p entry.EnvironmentPrepared) templ.Component {
	if _, placed := t.ledger.Placed(e.ID); placed {
		return nil
	}
	step, failed := p.Failed()
	if !failed {
		return noteLine("", "box", clip(p.Plain(), maxNote))
	}
	return preparationFailed(step, markup.OutputEnd(step.Output, markup.FoldedLines))
}

// unknown shows any entry: its type, and its payload as indented JSON.
func unknown(e entry.Entry) templ.Component {
	var pretty bytes.Buffer
	if !indentable(e.Payload) || json.Indent(&pretty, e.Payload, "", "  ") != nil {
		return unreadable(e)
	}
	return genericBody(clip(e.Type, maxWord), clip(pretty.String(), maxShown))
}

// unreadable shows the beginning of an entry's payload as it is in the log.
func unreadable(e entry.Entry) templ.Component {
	return genericBody(clip(e.Type, maxWord), clip(string(e.Payload[:min(len(e.Payload), 2*maxShown)]), maxShown))
}

// indentable reports whether indented JSON stays small enough. It may be much larger than the payload, because the
// indentation of each value grows with its depth.
func indentable(payload []byte) bool {
	const maxSize, maxDepth = 64 << 10, 32
	depth := 0
	for _, c := range payload[:min(len(payload), maxSize+1)] {
		switch c { // brackets in strings count too, because the result only needs to be safe
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDepth {
			return false
		}
	}
	return len(payload) <= maxSize
}

package export

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// shownOutput limits how much of a command's output a document has, in bytes.
const shownOutput = 16_000

// shownEvent limits the text of an event that takes a line, in bytes. A longer text gets a heading of its own.
const shownEvent = 200

// markdown writes the export as a document, with everything or only with what was said.
func (x *Export) markdown(ctx context.Context, out *bufio.Writer, talk bool) error {
	m := newMarkdown(out, func(id string) string {
		if _, known := x.names[id]; !known {
			x.names[id] = id // until the name is known; a log is worth exporting without names, too
			_, _ = x.agent(ctx, id)
		}
		return x.names[id]
	})
	var types []string
	if m.talk = talk; talk {
		types = []string{entry.Chat{}.Type()}
	}
	m.head(x)
	for e, err := range x.entries(ctx, types...) {
		if err != nil {
			return err
		}
		m.entry(e)
		if _, err := out.Write(nil); err != nil {
			return err // the first error of writing
		}
	}
	return nil
}

// markdown writes a thread as a Markdown document. Others wrote most of the text, and none of that can pass for the
// document's own: each foreign text is a block quote, a fence longer than any in it, or escaped on one line. In a heading,
// names come last, so that they cannot pass for a number or a time.
type markdown struct {
	out *bufio.Writer // keeps the first error
	// author returns the name of an agent.
	author func(id string) string

	talk   bool   // only what was said is written
	day    string // of the last entry, in UTC
	listed bool   // the last line was an item of a list

	shown map[string]string // the names of agents in the document, by id
	taken map[string]bool   // these names, in lowercase
	// commands has the positions of commands without a result so far, by id.
	commands map[string]int64
	// ran has the results of tool calls whose commands were shown, by the id of the command. The call's own result follows.
	ran map[string]bool
}

func newMarkdown(out *bufio.Writer, author func(id string) string) *markdown {
	return &markdown{
		out: out, author: author, commands: map[string]int64{}, ran: map[string]bool{},
		shown: map[string]string{"": "arbe"}, taken: map[string]bool{"arbe": true},
	}
}

// who returns the name of an agent, with the id if another agent has the same name.
func (m *markdown) who(id string) string {
	if name, known := m.shown[id]; known {
		return name
	}
	name := cmp.Or(escaped(m.author(id)), escaped(id))
	for m.taken[strings.ToLower(name)] {
		name += " (" + escaped(id) + ")"
	}
	m.shown[id], m.taken[strings.ToLower(name)] = name, true
	return name
}

// head writes the facts about the thread.
func (m *markdown) head(x *Export) {
	t := x.Thread
	fmt.Fprintf(m.out, "# %s\n", cmp.Or(escaped(t.GetName()), "(untitled)"))
	m.item("House: " + escaped(strings.TrimSpace(x.house.Name+" ("+x.house.ID+")")))
	m.item("Thread: " + escaped(t.GetId()) + ", " + arbev1.Word(t.GetStatus()) + ", created " + t.GetCreatedAt().AsTime().UTC().Format(time.RFC3339))
	if t.GetParent().GetKind() == "thread" {
		m.item("Child of thread " + escaped(t.GetParent().GetId()))
	}
	if from := t.GetForkedFrom(); from != nil {
		m.item(fmt.Sprintf("Forked from %s at entry %d", escaped(cmp.Or(from.GetThreadId(), "a deleted thread")), from.GetSeq()))
	}
	if len(t.GetTags()) > 0 {
		m.item("Tags: " + escaped(strings.Join(t.GetTags(), ", ")))
	}
	m.item(fmt.Sprintf("Exported: %s, with %d entries", x.at.Format(time.RFC3339), x.End))
	for _, a := range x.agents {
		m.item(fmt.Sprintf("Spoke here: %s (%s)", m.who(a.ID), escaped(strings.TrimSpace(a.Kind+" "+a.ID))))
	}
	m.block(fmt.Sprintf("Times are in UTC, and #N is the position of an entry in the thread. The texts of people and bots are quoted. Of a command's output, at most %s are shown.",
		entry.FileSize(shownOutput)))
}

// entry writes an entry, with the present text of a message. Entries that only change another one write nothing.
func (m *markdown) entry(e *arbev1.Entry) {
	if strings.HasPrefix(e.GetType(), entry.Quiet) {
		return
	}
	payload, known := Decode(e)
	if !known {
		m.event(e, e.GetType())
		return
	}
	switch p := payload.(type) {
	case entry.Chat:
		m.chat(e, p)
	case entry.PiAssistant:
		m.step(e, p)
	case entry.PiToolResult:
		m.callResult(e)
	case entry.Command:
		m.commands[e.GetId()] = e.GetSeq()
		m.heading(e, "command")
		m.fence("sh", p.Line())
	case entry.CommandResult:
		m.result(e, p)
	case entry.TurnStarted: // the answer shows the turn
	default:
		m.happened(e, payload)
	}
	if reactions := Reactions(e.GetState()); reactions != "" {
		m.block("Reactions: " + escaped(reactions))
	}
}

// callResult writes the result of a call, unless it ran a command, whose result says more.
func (m *markdown) callResult(e *arbev1.Entry) {
	if id := entry.CallCommandID(e.GetId()); m.ran[id] {
		delete(m.ran, id)
		return
	}
	m.events(e, Steps(e)...)
}

// happened writes what happened, with what follows from it.
func (m *markdown) happened(e *arbev1.Entry, payload entry.Payload) {
	m.event(e, payload.Plain())
	switch p := payload.(type) {
	case entry.TurnEnded:
		if p.Summary != nil {
			m.event(e, turnFoot(*p.Summary))
		}
	case entry.RunFinished:
		if p.PatchArtifactID != "" {
			m.event(e, fmt.Sprintf("its changes, in %d files: artifact %s", p.PatchFiles, p.PatchArtifactID))
		}
	case entry.ChildFinished:
		if p.PatchArtifactID != "" {
			m.event(e, "its changes: artifact "+p.PatchArtifactID)
		}
	}
}

func (m *markdown) chat(e *arbev1.Entry, c entry.Chat) {
	if e.GetState().GetDeleted() {
		m.heading(e, "message")
		m.block("(deleted)") // the only text of a message that is not quoted
		return
	}
	var kind []string
	if e.GetState().GetText() != "" {
		kind = append(kind, "edited")
	}
	if c.Run != nil {
		kind = append(kind, fmt.Sprintf("result of run %d in thread %s: %s", c.Run.Epoch, escaped(c.Run.ThreadID), escaped(c.Run.Outcome)))
	}
	m.heading(e, strings.Join(append(kind, "message"), " · "))
	if c.ReplyTo != "" {
		m.block("In reply to entry " + escaped(c.ReplyTo))
	}
	m.quote(c.Text)
	for _, a := range c.Attachments {
		m.item(escaped(a.Plain()))
	}
	if c.Turn != nil {
		if !m.talk {
			m.events(e, Thought(c.Turn.Thinking)...)
		}
		m.block(escaped(turnFoot(*c.Turn)))
	}
}

// step writes one answer of a model: its text, and its tool calls in one line each.
func (m *markdown) step(e *arbev1.Entry, p entry.PiAssistant) {
	lines := append(Thought(p.Thought()), Steps(e)...)
	if p.ErrorMessage != "" {
		lines = append(lines, p.ErrorMessage)
	}
	if text := p.Text(); strings.TrimSpace(text) != "" {
		m.heading(e, "step")
		m.quote(text)
	}
	m.events(e, lines...)
	foot := p.Model
	if cost := p.Usage.Cost; cost != nil {
		foot += fmt.Sprintf(" · $%.4f", cost.Total)
	}
	if foot != "" {
		m.event(e, foot)
	}
}

// result writes a command's outcome, and its output without what exceeds [shownOutput].
func (m *markdown) result(e *arbev1.Entry, r entry.CommandResult) {
	of := "command " + escaped(r.CommandID)
	if seq := m.commands[r.CommandID]; seq > 0 {
		of = fmt.Sprintf("command #%d", seq)
	}
	delete(m.commands, r.CommandID)
	if entry.TurnOf(r.CommandID) != "" {
		m.ran[r.CommandID] = true
	}
	m.heading(e, "result of "+of)
	m.block(escaped(r.Outcome()))
	if r.Error != "" {
		m.block(escaped(r.Error))
	}
	head, tail, whole := r.Output, r.OutputTail, max(r.OutputBytes, int64(len(r.Output)+len(r.OutputTail)))
	if r.Terminal {
		head, tail = entry.TerminalText(head), entry.TerminalText(tail)
	}
	if !r.Truncated && len(head) <= shownOutput {
		m.fence("", head)
		return
	}
	if !r.Truncated {
		tail = head[len(head)-shownOutput/2:]
	}
	head = strings.ToValidUTF8(head[:min(len(head), shownOutput/2)], "")
	tail = strings.ToValidUTF8(tail[max(len(tail)-shownOutput/2, 0):], "")
	m.fence("", head)
	m.block(escaped(fmt.Sprintf("The output has %d bytes, of which the middle is left out here; %s.", whole, whereIsMore(r))))
	m.fence("", tail)
}

// whereIsMore says where the rest of an output is.
func whereIsMore(r entry.CommandResult) string {
	switch {
	case r.ArtifactID != "" && r.ArtifactPart:
		return fmt.Sprintf("artifact %s has the first %d bytes of it", r.ArtifactID, r.ArtifactBytes)
	case r.ArtifactID != "":
		return "artifact " + r.ArtifactID + " has all of it"
	case !r.Truncated:
		return "the entry has all of it"
	}
	return "the entry has more of it"
}

// events writes lines about work.
func (m *markdown) events(e *arbev1.Entry, lines ...string) {
	for _, line := range lines {
		m.event(e, line)
	}
}

// event writes what happened: in one line, or under a heading if it is long.
func (m *markdown) event(e *arbev1.Entry, text string) {
	text = strings.TrimSpace(text)
	if len(text) <= shownEvent && !strings.Contains(text, "\n") {
		m.newDay(e)
		m.item(m.at(e) + " · " + m.who(e.GetAuthorAgentId()) + ": " + escaped(text))
		return
	}
	m.heading(e, escaped(e.GetType()))
	m.quote(text)
}

// heading begins the part about an entry.
func (m *markdown) heading(e *arbev1.Entry, kind string) {
	m.newDay(e)
	m.block("### " + m.at(e) + " · " + kind + " · " + m.who(e.GetAuthorAgentId()))
}

// newDay writes the date of an entry if it differs from that of the entry before.
func (m *markdown) newDay(e *arbev1.Entry) {
	if day := e.GetTs().AsTime().UTC().Format("2006-01-02, Monday"); day != m.day {
		m.day = day
		m.block("## " + day)
	}
}

// at returns the position and the time of an entry.
func (m *markdown) at(e *arbev1.Entry) string {
	return fmt.Sprintf("#%d · %s", e.GetSeq(), e.GetTs().AsTime().UTC().Format("15:04:05 UTC"))
}

// block writes a paragraph, or another block, that is not foreign text.
func (m *markdown) block(text string) {
	m.listed = false
	fmt.Fprintf(m.out, "\n%s\n", text)
}

func (m *markdown) item(text string) {
	if !m.listed {
		fmt.Fprintln(m.out)
	}
	m.listed = true
	fmt.Fprintf(m.out, "- %s\n", text)
}

// fence writes a text as it is, between fences that it cannot close.
func (m *markdown) fence(language, text string) {
	text = strings.TrimSuffix(entry.Printable(text), "\n")
	if text == "" {
		return
	}
	longest := 2
	for _, run := range backticks(text) {
		longest = max(longest, run.length)
	}
	fence := strings.Repeat("`", longest+1)
	m.block(fence + language + "\n" + text + "\n" + fence)
}

// quote writes a text, which is Markdown, as a block quote.
//
// A block quote contains headings, lists and fences, but HTML can close it, and a link definition changes links in the whole
// document. Therefore quote breaks up both, except in what every reader of Markdown takes for code: fences that begin a
// line, and spans within a line.
func (m *markdown) quote(text string) {
	text = strings.Trim(entry.Printable(text), "\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	m.listed = false
	fmt.Fprintln(m.out)
	fence := ""     // the open fence
	unsure := false // a fence that does not begin a line may be open
	open := false   // a span may have begun in an earlier line of the paragraph
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case fence != "":
			if closesFence(line, fence) {
				fence = ""
			} else if rest := strings.TrimLeft(line, " \t"); strings.HasPrefix(rest, fence) {
				line = strings.ReplaceAll(line[:len(line)-len(rest)], "\t", "    ") + rest // readers differ about a tab after "> "
			}
		case !unsure && opensFence(line) != "":
			fence = opensFence(line)
		default:
			unsure = unsure || strings.Contains(line, "```") || strings.Contains(line, "~~~")
			open = open && strings.TrimSpace(line) != ""
			safe, begun := harmlessLine(line, !unsure && !open)
			line, open = safe, open || begun
		}
		fmt.Fprintf(m.out, "> %s\n", line)
	}
	if fence != "" {
		fmt.Fprintf(m.out, "> %s\n", fence)
	}
}

// opensFence returns the fence that a line opens; empty if it opens none at its beginning.
func opensFence(line string) string {
	for _, c := range []string{"`", "~"} {
		rest := strings.TrimLeft(line, c)
		if n := len(line) - len(rest); n >= 3 && (c == "~" || !strings.Contains(rest, c)) {
			return line[:n]
		}
	}
	return ""
}

// closesFence reports whether a line closes a fence.
func closesFence(line, fence string) bool {
	run := strings.TrimRight(strings.TrimLeft(line, " "), " \t")
	indent := len(line) - len(strings.TrimLeft(line, " "))
	return indent <= 3 && len(run) >= len(fence) && strings.Trim(run, fence[:1]) == ""
}

// harmlessLine breaks up HTML and link definitions of a line, except in code spans if spans is set. open reports that a span
// may continue in the next line.
func harmlessLine(line string, spans bool) (safe string, open bool) {
	runs := backticks(line)
	last := map[int]int{} // the last run of each length
	for i, run := range runs {
		last[run.length] = i
	}
	// Not all backticks make a span: in a table, a bar ends it; after a backslash, a backtick is plain text; and a link
	// includes the backticks in it.
	spans = spans && !strings.ContainsAny(line, `|\`) && !strings.Contains(line, ":/") && !strings.Contains(strings.ToLower(line), "www.")
	var b strings.Builder
	at := 0
	for i := 0; i < len(runs); i++ {
		if last[runs[i].length] == i {
			open = true
			continue
		}
		begin := i
		for i++; runs[i].length != runs[begin].length; i++ {
		}
		if spans {
			b.WriteString(disarmed(line[at:runs[begin].at]))
			at = runs[i].at + runs[i].length
			b.WriteString(line[runs[begin].at:at])
		}
	}
	b.WriteString(disarmed(line[at:]))
	return b.String(), open || !spans && len(runs) > 0
}

// disarmed breaks up HTML and link definitions. A backslash would not do, because the text may already have one before
// them.
func disarmed(text string) string {
	text = strings.ReplaceAll(text, "]:", "]&#58;")
	if !strings.Contains(text, "<") {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		next := byte(' ')
		if i+1 < len(text) {
			next = text[i+1]
		}
		if text[i] == '<' && (next == '/' || next == '!' || next == '?' || 'a' <= next|0x20 && next|0x20 <= 'z') {
			b.WriteString("&lt;")
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// backtickRun is a run of backticks.
type backtickRun struct{ at, length int }

func backticks(text string) (runs []backtickRun) {
	for at := 0; at < len(text); {
		next := strings.IndexByte(text[at:], '`')
		if next < 0 {
			break
		}
		at += next
		length := len(text[at:]) - len(strings.TrimLeft(text[at:], "`"))
		runs = append(runs, backtickRun{at, length})
		at += length
	}
	return runs
}

// escaped returns a text on one line, without markup.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range strings.Join(strings.Fields(entry.PrintableLine(text)), " ") {
		if strings.ContainsRune("\\`*_[]<>&~|#!$", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// turnFoot describes a bot's turn: its work, its cost and its model.
func turnFoot(s entry.TurnSummary) string {
	return cmp.Or(s.Model, "unknown model") + " · " + s.Foot()
}

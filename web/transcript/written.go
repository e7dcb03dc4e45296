package transcript

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxBlocks limits the parts of an unfinished step that are shown. maxWritten limits the unfinished end of each part,
	// such as a long block of code, in bytes. Twice as much is still rendered as Markdown.
	maxBlocks, maxWritten = 64, 12 << 10
	// pieceSize is roughly how much of a text is rendered at once.
	pieceSize = 16 << 10
	// freeTail is how much each paint may send. After a larger paint, the next one comes later.
	freeTail = 8 << 10
	// maxChunk is the longest line of a step's deltas, in bytes. A longer one is skipped.
	maxChunk = 64 << 10
	// PaintEvery is the shortest time between two previews of a running command's output. Without it, every piece of fast
	// output would be rendered.
	PaintEvery = 120 * time.Millisecond
	// paintTime limits the rendering of one preview. What is not rendered by then is shown by the next ones.
	paintTime = 60 * time.Millisecond
)

// TurnAtWork is a turn of a bot, or a run of a coding agent, in progress, with its unfinished step.
type TurnAtWork struct {
	// Key is the id of its block in the page.
	Thread, Turn, Key string
	Author            Author
	// Run reports that it is a run. Word describes what it is doing.
	Run    bool
	Word   string
	Began  time.Time
	Blocks []WrittenBlock
	// Cut reports that not all of the step is shown.
	Cut bool

	behind bool // another paint shows more
}

// WrittenBlock is a part of an unfinished step.
type WrittenBlock struct {
	// Key is its id in the page. Kind is "text", "thinking", "call", or empty if nothing has arrived yet.
	Key, Kind string
	// HTML is the finished part of a text and End its end. A page keeps the HTML that it has, and replaces End.
	HTML, End string
	// Text is the new part of a model's thinking. It is plain text, not Markdown.
	Text string
	Call Call
}

// TurnChange is the difference between a turn in progress and the page's version of it.
type TurnChange struct {
	TurnAtWork
	// New reports that the page does not have the block. The other fields then do not matter.
	New                    bool
	WordChanged, CutChange bool
	// Changes has one element for each of the Blocks.
	Changes []BlockChange
}

// BlockChange is the difference in one part: the part is New or Replaced, or something was added to it.
type BlockChange struct {
	New, Replaced bool
	// Trimmed reports that the page must remove the beginning of the part, and EndChanged that the end differs.
	Trimmed, EndChanged bool
}

// workOf describes a turn at work. w is nil if nothing of its step has arrived.
func (k *known) workOf(t turn, w *written) TurnAtWork {
	v := TurnAtWork{Thread: k.thread, Turn: t.ID, Key: turnKey(t.ID), Run: entry.AnswerWork(t.ID).Kind == entry.RunWork, Author: k.people.ByID(t.Agent), Began: t.Began, Word: entry.Clip(t.word(), MaxNote)}
	if v.Author.Name == "" {
		v.Author = Author{Name: "A bot", Initial: "?", Bot: true}
	}
	if w == nil {
		return v
	}
	effort := markup.EffortOf(paintTime)
	v.Cut = w.missed
	for i := range w.blocks {
		v.show(i, &w.blocks[i], effort)
	}
	if w.retry != "" {
		v.Word = w.retry
	}
	return v
}

// show adds a part of the step and, for the last part, what the turn is doing.
func (v *TurnAtWork) show(i int, b *writtenBlock, effort *markup.Effort) {
	v.Cut = v.Cut || b.cut
	part := WrittenBlock{Key: v.Key + "-" + strconv.Itoa(i), Kind: b.kind}
	switch b.kind {
	case "text":
		v.Word = "writing"
		v.behind = b.render(effort) || v.behind
		part.HTML, part.End = b.finished, b.end
	case "thinking":
		v.Word = "thinking"
		part.Text = b.text
	case "call":
		v.Word = "calling a tool"
		summary, _ := argumentsText(json.RawMessage(b.text))
		part.Call = Call{Key: part.Key, Name: cmp.Or(b.name, "tool"), Summary: summary, Class: "running"}
		b.end = part.Call.Name + " " + summary
	}
	v.Blocks = append(v.Blocks, part)
}

func turnKey(turn string) string { return "w" + blockKey(turn) }

// written is the unfinished step of a turn, as far as its deltas arrived. It is not safe for concurrent use.
type written struct {
	// step is the id of the step's entry, and call the part of the deltas' id that differs from call to call of the model.
	step, call string
	// offset is where the next piece begins.
	offset int64
	// line is the beginning of an incomplete line. skip is set up to the end of a line whose beginning is missing.
	line []byte
	skip bool
	// missed reports that a part before the blocks did not arrive.
	missed bool
	// over reports that the log already has the step.
	over bool
	// retry says whom the turn waits for, until the answer continues.
	retry  string
	blocks []writtenBlock
	// painted reports that the page has the turn's block. word is what the block says that the turn is doing, and cut reports
	// whether the block leaves something out. The next paint then sends only what differs.
	painted bool
	word    string
	cut     bool
	// parts is the number of blocks that the page has a place for.
	parts int
	// pausedUntil is when it may be painted again.
	pausedUntil time.Time
}

// take adds a piece of deltas. A piece of another call of the model starts over.
func (w *written) take(step, call string, offset int64, data []byte) {
	if step != w.step || call != w.call {
		*w = written{step: step, call: call}
	}
	if w.over {
		return
	}
	switch {
	case offset+int64(len(data)) <= w.offset:
		return // a duplicate
	case offset < w.offset:
		data = data[w.offset-offset:]
	case offset > w.offset:
		w.line, w.skip, w.missed = nil, true, true
	}
	w.offset = max(w.offset, offset) + int64(len(data))
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if w.line = append(w.line, data...); len(w.line) > maxChunk {
				w.line, w.skip, w.missed = nil, true, true
			}
			return
		}
		line := append(w.line, data[:end]...)
		w.line, data = nil, data[end+1:]
		if !w.skip && len(line) <= maxChunk {
			w.chunk(line)
		}
		w.skip = false
	}
}

// chunk adds one line. A line that is not a chunk is ignored.
func (w *written) chunk(line []byte) {
	var c entry.PiChunk
	if json.Unmarshal(line, &c) != nil {
		return
	}
	if c.Kind == "retry" {
		w.retry = entry.Clip(c.Text, MaxNote)
		return
	}
	if c.Block < 0 || c.Block >= maxBlocks {
		return
	}
	w.retry = ""
	for len(w.blocks) <= c.Block {
		w.blocks = append(w.blocks, writtenBlock{})
	}
	b := &w.blocks[c.Block]
	switch c.Kind {
	case "text", "thinking":
		b.kind = c.Kind
		b.add(c.Text)
	case "call_start":
		b.kind, b.name = "call", entry.Clip(c.Name, 80)
	case "call_args":
		b.kind = "call"
		if len(b.text) < maxShown {
			b.text = entry.Clip(b.text+c.Text, maxShown)
		}
	case "call_end":
		b.kind = "call"
	}
}

// isNowIn ends the preview of a step that the log has. It keeps the step's ids, because more deltas may still arrive.
func (w *written) isNowIn() { *w = written{step: w.step, call: w.call, offset: w.offset, over: true} }

// change returns the difference between v and the last paint.
func (w *written) change(v TurnAtWork) TurnChange {
	c := TurnChange{TurnAtWork: v, New: w == nil || !w.painted}
	if c.New {
		return c
	}
	c.WordChanged, c.CutChange = v.Word != w.word, v.Cut != w.cut
	for i, b := range w.blocks {
		c.Changes = append(c.Changes, BlockChange{
			New: i >= w.parts, Replaced: b.shown != b.kind || b.kind == "call" && b.end != b.shownEnd,
			Trimmed: b.trim, EndChanged: b.end != b.shownEnd,
		})
	}
	return c
}

// paint records that the page now shows v.
func (w *written) paint(v TurnAtWork) {
	w.painted, w.word, w.cut, w.parts = true, v.Word, v.Cut, len(w.blocks)
	size := 0
	for i := range w.blocks {
		b := &w.blocks[i]
		size = max(size, len(b.finished)+len(b.end))
		if b.onPage += len(b.finished); b.trim {
			b.onPage, b.trim = 0, false
		}
		b.shown, b.shownEnd, b.finished = b.kind, b.end, ""
		if b.kind == "thinking" {
			b.text = ""
		}
	}
	w.pausedUntil = time.Now().Add(PaintEvery * time.Duration(size/freeTail))
}

// writtenBlock is one part of the step. It does not keep the HTML that the page has for good. So the time and bytes of a
// paint depend on what was added, not on the length of the text.
type writtenBlock struct {
	kind string // "text", "thinking" or "call"
	// text is the unfinished part. In a text, this part may still change. In thinking, it was not sent yet. In a call, it is
	// the arguments.
	text string
	name string
	// cut reports that a part of the text is left out.
	cut bool
	// finished is final HTML that was not yet sent, and end is the HTML of text.
	finished, end string
	// onPage is about how much finished HTML the page has, in bytes. If trim is set, the next paint removes its beginning.
	onPage int
	trim   bool
	// shown is the kind that the page has, and shownEnd the end. rendered reports that finished and end show all of text.
	shown, shownEnd string
	rendered        bool
}

// add adds text. If too much of the text is unfinished, add drops the beginning of the unfinished part.
func (b *writtenBlock) add(text string) {
	b.rendered = false
	b.text += strings.ToValidUTF8(text, "\uFFFD")
	if b.kind != "text" || len(b.text) <= 2*maxWritten {
		return
	}
	if b.finish(markup.NewEffort()); len(b.text) <= 2*maxWritten {
		return
	}
	rest := b.text[len(b.text)-maxWritten:]
	if at := strings.IndexByte(rest, '\n'); at >= 0 {
		rest = rest[at+1:]
	}
	// The rest of a code block is still a code block.
	block := markup.OpenBlock(b.text[:len(b.text)-len(rest)])
	if rest = strings.ToValidUTF8(rest, ""); block != "" {
		rest = entry.Clip(block, MaxWord) + "\n" + rest
	}
	b.text, b.cut = rest, true
}

// render renders what the effort allows. It reports whether that is not all of the text.
func (b *writtenBlock) render(effort *markup.Effort) (behind bool) {
	if b.rendered {
		return false
	}
	b.finish(effort)
	if b.onPage+len(b.finished) > maxFinished {
		b.cut, b.trim = true, true
	}
	b.end = ""
	if effort.Spent() {
		return true
	}
	if strings.TrimSpace(b.text) != "" {
		b.end = markup.Markdown(b.text, effort)
	}
	b.rendered = true
	return false
}

// finish renders the final part as Markdown, so that a paint takes only the time for the last paragraph, and text that
// readers have read does not change. It stops when the effort is spent.
func (b *writtenBlock) finish(effort *markup.Effort) {
	for !effort.Spent() {
		n := markup.StablePart(b.text[:min(len(b.text), pieceSize)])
		if n == 0 {
			n = markup.StablePart(b.text)
		}
		if n == 0 {
			return
		}
		if len(b.finished) > maxFinished {
			b.finished, b.cut, b.trim = "", true, true
		}
		b.finished += markup.Markdown(b.text[:n], effort)
		b.text = b.text[n:]
	}
}

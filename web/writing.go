package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

const (
	// maxBlocks is how many parts of a step that is being written are shown, and maxWritten how much of the unfinished end
	// of each, in bytes: for example of a long block of code. Twice as much is still rendered as Markdown.
	maxBlocks, maxWritten = 64, 12 << 10
	// pieceSize is about how much of a text is rendered at once.
	pieceSize = 16 << 10
	// freeTail is how much is sent with each paint. After a larger one the next is later.
	freeTail = 8 << 10
	// maxFinished is about how much finished HTML of a part a page gets at once, and has before its beginning is removed
	// up to the last keptElements. Otherwise a model that writes very fast would stop the browsers of all who watch.
	maxFinished, keptElements = 128 << 10, 400
	// maxChunk is the longest line of a step's deltas, in bytes. A longer one is skipped.
	maxChunk = 64 << 10
	// paintTime limits the rendering of one preview.
	paintTime = 60 * time.Millisecond
	// maxWriting is how many turns of one thread a connection shows while they are written.
	maxWriting = 16
)

// writing is the step that a turn's model is writing, as far as its deltas have arrived. It is not safe for concurrent use.
type writing struct {
	// step is the id of the step's entry, and call the part of the deltas' id that differs from call to call of the model.
	step, call string
	// offset is where the next piece begins.
	offset int64
	// line is the beginning of an incomplete line. skip is set up to the end of a line whose beginning is missing.
	line []byte
	skip bool
	// missed reports that something before the blocks did not arrive.
	missed bool
	// over reports that the log has the step.
	over bool
	// retry says for whom the turn waits, until the answer goes on.
	retry  string
	blocks []writtenBlock
	// painted reports that the page has the turn's block, with word as what it does and cut as whether something is left
	// out. The next paint then sends what differs.
	painted bool
	word    string
	cut     bool
	// parts is how many of the blocks the page has a place for.
	parts int
	// rest is when it may be painted again.
	rest time.Time
}

// writtenBlock is one part of the step. What the page has for good is not kept: a paint takes time and bytes for what was
// added, however long the text is.
type writtenBlock struct {
	kind string // "text", "thinking" or "call"
	// text is what is not finished: of a text, what may still change; of thinking, what was not sent; of a call, its
	// arguments.
	text string
	name string
	// cut reports that a part of the text is left out.
	cut bool
	// finished is the HTML that does not change any more and was not sent, and end that of text.
	finished, end string
	// onPage is about how much finished HTML the page has, in bytes. If trim is set, the next paint removes its beginning.
	onPage int
	trim   bool
	// shown is the kind that the page has, and shownEnd the end.
	shown, shownEnd string
}

// take adds a piece of deltas. A piece of another call of the model starts over.
func (w *writing) take(step, call string, offset int64, data []byte) {
	if step != w.step || call != w.call {
		*w = writing{step: step, call: call}
	}
	if w.over {
		return
	}
	switch {
	case offset+int64(len(data)) <= w.offset:
		return // it came twice
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
func (w *writing) chunk(line []byte) {
	var c entry.PiChunk
	if json.Unmarshal(line, &c) != nil {
		return
	}
	if c.Kind == "retry" {
		w.retry = clip(c.Text, maxNote)
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
		b.kind, b.name = "call", clip(c.Name, 80)
	case "call_args":
		b.kind = "call"
		if len(b.text) < maxShown {
			b.text = clip(b.text+c.Text, maxShown)
		}
	case "call_end":
		b.kind = "call"
	}
}

// add adds text. If too much of it is unfinished, the beginning of that is dropped.
func (b *writtenBlock) add(text string) {
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
	// What is left of a code block stays one.
	block := markup.OpenBlock(b.text[:len(b.text)-len(rest)])
	if rest = strings.ToValidUTF8(rest, ""); block != "" {
		rest = clip(block, maxWord) + "\n" + rest
	}
	b.text, b.cut = rest, true
}

// finish renders what does not change any more as Markdown, so that a paint takes the time of the last paragraph, and so that
// what readers have read stays as it is.
func (b *writtenBlock) finish(effort *markup.Effort) {
	for {
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

// render renders the text.
func (b *writtenBlock) render(effort *markup.Effort) {
	b.finish(effort)
	if b.onPage+len(b.finished) > maxFinished {
		b.cut, b.trim = true, true
	}
	b.end = ""
	if strings.TrimSpace(b.text) != "" {
		b.end = markup.Markdown(b.text, effort)
	}
}

// writingView is a turn at work.
type writingView struct {
	Thread, Turn, Key string
	Author            author
	// Word says what it does now.
	Word   string
	Began  time.Time
	Blocks []writtenView
	// Cut reports that not all of the step is shown.
	Cut bool
}

// writtenView is a part of the step that is being written.
type writtenView struct {
	Key, Kind string
	// HTML is the finished part of a text and End its end; Text is thinking, which is not interpreted.
	HTML, End, Text string
	Call            callView
}

func writingKey(turn string) string { return "w" + blockKey(turn) }

// writingOf describes a turn at work. w is nil if nothing of its step has arrived.
func (t *transcript) writingOf(seen turnSeen, w *writing) writingView {
	v := writingView{Thread: t.thread, Turn: seen.ID, Key: writingKey(seen.ID), Author: t.people.byID(seen.Agent), Began: seen.Began, Word: clip(seen.word(), maxNote)}
	if v.Author.Name == "" {
		v.Author = author{Name: "A bot", Initial: "?", Bot: true}
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

// show adds a part of the step, and says what the turn does if it is the last one.
func (v *writingView) show(i int, b *writtenBlock, effort *markup.Effort) {
	v.Cut = v.Cut || b.cut
	part := writtenView{Key: v.Key + "-" + strconv.Itoa(i), Kind: b.kind}
	switch b.kind {
	case "text":
		v.Word = "writing"
		b.render(effort)
		part.HTML, part.End = b.finished, b.end
	case "thinking":
		v.Word = "thinking"
		part.Text = b.text
	case "call":
		v.Word = "calling a tool"
		summary, _ := argumentsText(json.RawMessage(b.text))
		part.Call = callView{Key: part.Key, Name: cmp.Or(b.name, "tool"), Summary: summary, Class: "running"}
		b.end = part.Call.Name + " " + summary
	}
	v.Blocks = append(v.Blocks, part)
}

// writingNow describes the turns at work of which nothing has arrived.
func (t *transcript) writingNow(ctx context.Context) (list []writingView, err error) {
	for _, seen := range t.turnsAtWork() {
		if err := t.people.meet(ctx, seen.Agent); err != nil {
			return nil, err
		}
		list = append(list, t.writingOf(seen, nil))
	}
	return list, nil
}

// patches are those that put a turn at work into its place. The first makes the block if the page does not have it. If the page
// has what was painted before, they are those of the difference.
func (v writingView) patches(ctx context.Context, w *writing) (patches []patch, err error) {
	add := func(selector, mode string, part templ.Component) {
		var text []byte
		if err == nil {
			text, err = rendered(ctx, part)
		}
		patches = append(patches, patch{Selector: selector, Mode: mode, HTML: string(text)})
	}
	if w == nil || !w.painted {
		place := "#writing:not(:has(#" + v.Key + "))"
		patches = []patch{{Selector: place, Mode: "append", HTML: `<article id="` + v.Key + `"></article>`}}
		add("#"+v.Key, "", writingTurn(v))
		return patches, err
	}
	if v.Word != w.word {
		add("#"+v.Key+"-word", "", writingWord(v))
	}
	if v.Cut != w.cut {
		add("#"+v.Key+"-cut", "", writingCut(v))
	}
	for i, part := range v.Blocks {
		switch b := w.blocks[i]; {
		case i >= w.parts:
			add("#"+v.Key+"-step", "append", writtenPart(part))
		case b.shown != part.Kind, part.Kind == "call" && b.end != b.shownEnd:
			add("#"+part.Key, "", writtenPart(part))
		case part.Kind == "thinking" && part.Text != "":
			add("#"+part.Key+"-more", "append", writtenMore(part.Text))
		case part.Kind == "text":
			if part.HTML != "" {
				add("#"+part.Key+"-end", "before", templ.Raw(part.HTML))
			}
			if b.trim {
				patches = append(patches, patch{Selector: "#" + part.Key + " > :nth-last-child(n+" + strconv.Itoa(keptElements+1) + ")", Mode: "remove"})
			}
			if b.end != b.shownEnd {
				add("#"+part.Key+"-end", "", writtenEnd(part))
			}
		}
	}
	return patches, err
}

// paint records that the page has what v shows.
func (w *writing) paint(v writingView) {
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
	w.rest = time.Now().Add(paintEvery * time.Duration(size/freeTail))
}

// writingGone removes the block of a turn.
func writingGone(turn string) patch { return patch{Selector: "#" + writingKey(turn), Mode: "remove"} }

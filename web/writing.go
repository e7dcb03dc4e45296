package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

const (
	// maxBlocks is how many parts of a step that is being written are shown, and maxWritten how much of each, in bytes: its
	// end, because readers follow that.
	maxBlocks, maxWritten = 64, 24 << 10
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
	// retry says why the request is sent again, until the answer goes on.
	retry  string
	blocks []writtenBlock
}

// writtenBlock is one part of the step.
type writtenBlock struct {
	kind string // "text", "thinking" or "call"
	text string
	name string
	done bool
	// cut reports that the text's beginning is left out.
	cut bool
	// finished is the HTML of the first so many bytes of the text, which do not change any more.
	finished string
	stable   int
}

// take adds a piece of deltas. A piece of another call of the model begins anew.
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
		b.kind, b.done = "call", true
	}
}

// add adds text, and drops the beginning of a long one.
func (b *writtenBlock) add(text string) {
	b.text += strings.ToValidUTF8(text, "\uFFFD")
	if len(b.text) <= 2*maxWritten {
		return
	}
	rest := b.text[len(b.text)-maxWritten:]
	if at := strings.IndexByte(rest, '\n'); at >= 0 {
		rest = rest[at+1:]
	}
	b.text, b.cut, b.finished, b.stable = strings.ToValidUTF8(rest, ""), true, "", 0
}

// html renders the text as Markdown. What is finished is rendered once, so that a preview takes the time of its last
// paragraph, and so that what readers have read stays as it is.
func (b *writtenBlock) html(effort *effort) string {
	if n := stablePart(b.text); n > b.stable {
		b.finished += markdown(b.text[b.stable:n], effort)
		b.stable = n
	}
	if strings.TrimSpace(b.text[b.stable:]) == "" {
		return b.finished
	}
	return b.finished + markdown(b.text[b.stable:], effort)
}

// stablePart returns the length of the part of a Markdown text that does not change, whatever follows: it ends after an
// empty line that is not in a code block, and before a line that does not continue a list.
func stablePart(text string) int {
	end, at := 0, 0
	fence, empty := "", false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if empty && fence == "" && strings.HasSuffix(line, "\n") && beginsBlock(line) {
			end = at
		}
		at += len(line)
		empty = trimmed == ""
		switch mark := fenceOf(trimmed); {
		case fence == "":
			fence = mark
		case strings.HasPrefix(mark, fence) && strings.Trim(trimmed, fence[:1]) == "":
			fence = ""
		}
	}
	return end
}

// beginsBlock reports whether a line after an empty one begins a block of its own, instead of going on with a list.
func beginsBlock(line string) bool {
	depth, _ := nesting(line)
	return depth == 0 && line[0] != ' ' && line[0] != '\t'
}

// fenceOf returns the marks with which a line begins or ends a code block; empty if it does neither.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, mark)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

// writingView is a turn at work.
type writingView struct {
	Thread, Turn, Key string
	Author            author
	// Word says what it does now.
	Word   string
	Began  time.Time
	Blocks []stepBlock
	// Cut reports that the beginning of the step is not shown.
	Cut bool
}

func writingKey(turn string) string { return "w" + blockKey(turn) }

// writingOf describes a turn at work. w is nil if nothing of its step has arrived.
func (t *transcript) writingOf(seen turnSeen, w *writing) writingView {
	v := writingView{Thread: t.thread, Turn: seen.ID, Key: writingKey(seen.ID), Author: t.people.byID(seen.Agent), Began: seen.Began, Word: "at work"}
	if v.Author.Name == "" {
		v.Author = author{Name: "A bot", Initial: "?", Bot: true}
	}
	if w == nil {
		return v
	}
	effort := newEffort()
	effort.time = paintTime
	v.Cut = w.missed
	for i := range w.blocks {
		b := &w.blocks[i]
		v.Cut = v.Cut || b.cut
		switch b.kind {
		case "text":
			v.Word = "writing"
			v.Blocks = append(v.Blocks, stepBlock{HTML: b.html(effort)})
		case "thinking":
			v.Word = "thinking"
			if strings.TrimSpace(b.text) != "" {
				v.Blocks = append(v.Blocks, stepBlock{Thinking: b.text})
			}
		case "call":
			v.Word = "calling a tool"
			summary, _ := argumentsText(json.RawMessage(b.text))
			v.Blocks = append(v.Blocks, stepBlock{Call: &callView{
				Key: v.Key + "-" + strconv.Itoa(i), Name: cmp.Or(b.name, "tool"), Summary: summary, Class: "running",
			}})
		}
	}
	if w.retry != "" {
		v.Word = "waiting: " + w.retry
	}
	return v
}

// writingPatches put a turn at work into its place. The first makes the block if the page does not have it.
func (v writingView) patches(html string) []patch {
	place := "#writing:not(:has(#" + v.Key + "))"
	return []patch{{Selector: place, Mode: "append", HTML: `<article id="` + v.Key + `"></article>`}, {Selector: "#" + v.Key, HTML: html}}
}

// writingGone removes the block of a turn.
func writingGone(turn string) patch { return patch{Selector: "#" + writingKey(turn), Mode: "remove"} }

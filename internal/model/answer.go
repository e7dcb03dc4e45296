package model

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Limits of an answer besides its size. No provider needs more.
const (
	maxBlocks   = 256
	maxCallName = 64
	// maxID limits the id of a call; a longer one is replaced by our own. maxPartID limits the ids that providers may
	// send, because some servers put a signature into them.
	maxID, maxPartID = 256, 64 << 10
	// blockSize is the size of a block besides its texts: the names of its fields, and memory.
	blockSize = 128
)

// errFull ends an answer that has become too long.
var errFull = errors.New("the answer is too long")

// stream collects an answer while a dialect reads it, and emits its deltas. All pieces of a block have one key, which
// no other block has while that block is open. A block begins with its first piece.
type stream struct {
	each  func(Delta)
	limit int
	size  int // approximately that of the JSON of the blocks

	blocks []entry.PiBlock
	text   []strings.Builder // the text so far of each block
	whole  []bool            // whether a call was finished
	open   map[string]int    // the open blocks, by kind and key
}

// grow adds to the size. If that exceeds the limit, the answer is full.
func (s *stream) grow(by int) error {
	if s.size+by > s.limit {
		s.size = s.limit
		return errFull
	}
	s.size += by
	return nil
}

// block returns the block with a key that the answer is writing. It begins the block if the key is new.
func (s *stream) block(key string, b entry.PiBlock) (at int, err error) {
	at, ok := s.open[key]
	if ok {
		return at, nil
	}
	if len(s.blocks) == maxBlocks {
		s.size = s.limit
		return 0, errFull
	}
	if err := s.grow(blockSize + stored(b.ID) + stored(b.Name)); err != nil {
		return 0, err
	}
	at = len(s.blocks)
	s.open[key] = at
	s.blocks, s.text, s.whole = append(s.blocks, b), append(s.text, strings.Builder{}), append(s.whole, false)
	return at, nil
}

// write adds as much text to the block with a key as the limit allows.
func (s *stream) write(key, kind string, d Delta) error {
	at, err := s.block(key, entry.PiBlock{Type: kind})
	if err != nil {
		return err
	}
	left := s.limit - s.size
	if err = s.grow(stored(d.Text)); err != nil {
		for i, c := range d.Text {
			if left -= storedRune(c); left < 0 {
				d.Text = d.Text[:i]
				break
			}
		}
	}
	if d.Text != "" {
		s.text[at].WriteString(d.Text)
		d.Block, d.CallID = at, s.blocks[at].ID
		s.each(d)
	}
	return err
}

// stored returns the largest size of a text in JSON, in bytes.
func stored(text string) (size int) {
	for _, c := range text {
		size += storedRune(c)
	}
	return size
}

func storedRune(c rune) int {
	switch {
	case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
		return 2
	case c < ' ', c == '<', c == '>', c == '&', c == '\u2028', c == '\u2029', c == utf8.RuneError: // as \u0000
		return 6
	}
	return utf8.RuneLen(c)
}

// say adds to a text.
func (s *stream) say(key, text string) error {
	if text == "" {
		return nil
	}
	return s.write("text"+key, entry.PiTextBlock, Delta{Kind: TextDelta, Text: text})
}

// said ends a text.
func (s *stream) said(key string) { delete(s.open, "text"+key) }

// think adds to a thought.
func (s *stream) think(key, text string) error {
	if _, begun := s.open["think"+key]; !begun {
		text = strings.TrimLeft(text, "\n") // in responses, thoughts begin with a line break
	}
	if text == "" {
		return nil
	}
	return s.write("think"+key, entry.PiThinkingBlock, Delta{Kind: ThinkingDelta, Text: text})
}

// prove adds to the provider's proof of thinking. Redacted thinking has only a proof.
func (s *stream) prove(key, proof string, redacted bool) error {
	if proof == "" {
		return nil
	}
	at, err := s.block("think"+key, entry.PiBlock{Type: entry.PiThinkingBlock})
	if err == nil {
		err = s.grow(stored(proof))
	}
	if err != nil {
		return err // a part of a proof proves nothing
	}
	s.blocks[at].ThinkingSignature += proof
	s.blocks[at].Redacted = redacted
	return nil
}

// thought ends thinking.
func (s *stream) thought(key string) { delete(s.open, "think"+key) }

// call begins a call. id is the provider's; empty if it has none.
func (s *stream) call(key, id, name string) error {
	switch {
	case len(name) > maxCallName:
		return outOfBounds("it calls a tool whose name has %d bytes, more than %d", len(name), maxCallName)
	case len(id) > maxPartID:
		return outOfBounds("it has a part whose id has %d bytes, more than %d", len(id), maxPartID)
	case id == "" || len(id) > maxID:
		id = "call_" + rand.Text()
	}
	at, err := s.block("call"+key, entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: name})
	if err == nil {
		s.each(Delta{Kind: CallStartDelta, Block: at, CallID: id, CallName: name})
	}
	return err
}

// argue adds a piece to the arguments of a call.
func (s *stream) argue(key, text string) error {
	if _, begun := s.open["call"+key]; !begun || text == "" {
		return nil
	}
	return s.write("call"+key, entry.PiCallBlock, Delta{Kind: CallArgsDelta, Text: text})
}

// called ends a call. whole are the complete arguments if the provider repeats them; the written pieces take
// precedence.
func (s *stream) called(key, whole string) error {
	at, begun := s.open["call"+key]
	if !begun {
		return nil
	}
	delete(s.open, "call"+key)
	b := &s.blocks[at]
	written := s.text[at].String()
	complete := arguments(cmp.Or(written, whole))
	if err := s.grow(max(0, stored(string(complete))-stored(written))); err != nil {
		return err
	}
	b.Arguments, s.whole[at] = complete, true
	s.each(Delta{Kind: CallEndDelta, Block: at, CallID: b.ID})
	return nil
}

// arguments returns the arguments that a model wrote, as a JSON string if they are broken or too deep. Broken JSON is
// not repaired, because half of a command is a different command.
func arguments(written string) json.RawMessage {
	text := strings.TrimSpace(written)
	switch {
	case text == "":
		return json.RawMessage("{}")
	case !deep(text) && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(written, "�"))
	if err != nil { // impossible for a string
		return json.RawMessage("{}")
	}
	return quoted
}

// answer assembles the answer.
func (s *stream) answer(e Endpoint, model string, w *wire, ends finish, failed error, r Request) Answer {
	content, calls := s.content()
	m := entry.PiAssistant{API: string(e.Dialect), Provider: e.Name, Model: model, ResponseID: w.id, Content: content}
	if len(w.id) > maxID { // it is only shown
		m.ResponseID = ""
	}
	switch {
	case failed != nil:
		m.StopReason, m.ErrorMessage = entry.PiError, failed.Error()
	case ends == endLength:
		m.StopReason = entry.PiLength
	case calls: // whatever finish reason the server gives
		m.StopReason = entry.PiToolUse
	default:
		m.StopReason = entry.PiStopped
	}
	a := Answer{Message: m, Usage: w.usage}
	if w.status == http.StatusOK && w.data { // a refused call costs nothing, whatever its status
		if a.Usage.Input+a.Usage.CacheRead+a.Usage.CacheWrite == 0 {
			a.Usage.Input, a.Estimated = r.Estimate(), true
		}
		if written := EstimateMessage(m); (failed != nil || s.size >= s.limit || a.Usage.Output == 0) && len(m.Content) > 0 && written > a.Usage.Output {
			a.Usage.Output, a.Estimated = written, true
		}
	}
	a.Message.Usage = a.Usage.pi(Lookup(e.Provider, model).Price)
	if a.Cost, a.CostKnown = w.price(model, a.Usage); w.hasCost {
		a.Message.Usage.Cost = &entry.PiCost{Total: w.cost, TotalFromProvider: true}
	}
	return a
}

// content returns the blocks, without calls that did not arrive whole, and reports whether a call is among them.
func (s *stream) content() (blocks []entry.PiBlock, calls bool) {
	for i, b := range s.blocks {
		switch b.Type {
		case entry.PiTextBlock:
			b.Text = strings.ToValidUTF8(s.text[i].String(), "�")
		case entry.PiThinkingBlock:
			b.Thinking = strings.ToValidUTF8(s.text[i].String(), "�")
		case entry.PiCallBlock:
			if !s.whole[i] {
				continue
			}
			calls = true
		}
		blocks = append(blocks, b)
	}
	return blocks, calls
}

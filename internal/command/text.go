package command

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/secret"
)

// text converts a stream of bytes to UTF-8 without NUL, because Postgres stores no other text. It replaces
// invalid bytes one by one. It removes secrets from both forms without changing their lengths, so all counts and offsets stay
// right.
type text struct {
	mu    sync.Mutex
	count func(n int64)  // counts converted bytes immediately, because some may be held back
	bytes *secret.Stream // receives the unconverted stream
	final *secret.Stream // receives the text for the result
	live  *secret.Stream // receives the text for those who watch
	made  []byte         // the converted form of the last piece
	begun []byte         // the beginning of an incomplete character
	ended bool
}

// Write never fails and never waits for a watcher, because that would stop the command. It ignores writes after the end,
// because the result is being written by then.
func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return len(p), nil
	}
	_, _ = t.bytes.Write(p) // never fails, nor do the others
	all := p
	if len(t.begun) > 0 {
		all = slices.Concat(t.begun, p)
	}
	complete := dropPartialEnd(all)
	t.begun = bytes.Clone(all[len(complete):])
	t.give(complete)
	return len(p), nil
}

// end passes on an incomplete character. It may be called more than once.
func (t *text) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		t.give(t.begun)
		t.flush()
	}
}

// cut passes on an incomplete character, because the next bytes do not continue it.
func (t *text) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(t.begun)
	t.begun = nil
	t.flush()
}

func (t *text) flush() {
	t.bytes.Flush()
	t.final.Flush()
	t.live.Flush()
}

func (t *text) give(p []byte) {
	if !utf8.Valid(p) || bytes.IndexByte(p, 0) >= 0 {
		t.made = appendText(t.made[:0], p)
		p = t.made
	}
	t.count(int64(len(p)))
	_, _ = t.final.Write(p)
	_, _ = t.live.Write(p)
}

// appendText appends p as text. Binary output may be long and its bytes are hard to predict. So one branch finds the few bytes
// that may begin a longer character, and a table converts the others.
func appendText(text, p []byte) []byte {
	text = slices.Grow(text, utf8.UTFMax*len(p))
	to, n := text[:cap(text)], len(text)
	for i := 0; i < len(p); {
		c, next := p[i], byte(0)
		if i+1 < len(p) {
			next = p[i+1]
		}
		if alone := textOf[c]; (alone>>40)&(textOf[next]>>48) == 0 {
			binary.LittleEndian.PutUint32(to[n:], uint32(alone))
			n, i = n+int(alone>>32&7), i+1
			continue
		}
		r, size := utf8.DecodeRune(p[i:])
		n, i = n+utf8.EncodeRune(to[n:], r), i+size // for an invalid byte, r is U+FFFD and size is 1
	}
	return to[:n]
}

// textOf describes each byte. The lower four bytes of a number are the text of the byte alone, the next one is the text's length.
// Bit 40 says that the byte may begin a longer character, and bit 48 that it may continue one.
var textOf = func() (of [256]uint64) {
	for c := range of {
		r := utf8.RuneError
		switch {
		case c == 0:
			r = '\u2400'
		case c < utf8.RuneSelf:
			r = rune(c)
		case c < 0xC0:
			of[c] = 1 << 48
		default:
			of[c] = 1 << 40
		}
		for i, b := range []byte(string(r)) {
			of[c] |= uint64(b) << (8 * i)
		}
		of[c] |= uint64(utf8.RuneLen(r)) << 32
	}
	return of
}()

// dropPartialEnd drops an incomplete character at the end.
func dropPartialEnd(b []byte) []byte {
	for i := len(b) - 1; i >= max(len(b)-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return b
			}
			return b[:i]
		}
	}
	return b
}

// dropPartialStart drops an incomplete character at the start.
func dropPartialStart(b []byte) []byte {
	for i := range min(utf8.UTFMax, len(b)) {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// substitute replaces a byte that is no part of a character.
const substitute = string(utf8.RuneError)

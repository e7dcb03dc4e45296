package command

import (
	"bytes"
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
	count func(n int64)  // counts converted bytes at once, because some may be held back
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

// appendText appends p as text. It makes one pass and no copy but the result, because binary output may be long.
func appendText(text, p []byte) []byte {
	for len(p) > 0 {
		n := 0
		for n < len(p) && p[n] < utf8.RuneSelf && p[n] != 0 {
			n++
		}
		text, p = append(text, p[:n]...), p[n:]
		if len(p) == 0 {
			break
		}
		r, size := utf8.DecodeRune(p)
		if r == 0 {
			r = '\u2400'
		}
		text, p = utf8.AppendRune(text, r), p[size:] // for an invalid byte, r is U+FFFD and size is 1
	}
	return text
}

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

package sandbox

import (
	"fmt"
	"strings"
	"sync"
)

// tailSize is the size of the kept end of an output, in bytes. The end has the error of a failed step.
const tailSize = 8 << 10

// tail is a writer that keeps the end of its input. It is safe for concurrent use, because both outputs of a command
// may go to one. The zero value is empty.
type tail struct {
	mu      sync.Mutex
	kept    []byte
	dropped int
}

// Write never fails. It drops bytes only when it has twice tailSize, so that a long output is not moved at each write.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > tailSize {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.dropped += over
	}
	return len(p), nil
}

// String returns the end of what was written, as text that Postgres accepts, with a note on how much is missing before
// it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept, dropped := t.kept, t.dropped
	if over := len(kept) - tailSize; over > 0 {
		kept, dropped = kept[over:], dropped+over
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(string(kept), "\uFFFD"), "\x00", "\u2400")
	if dropped > 0 {
		text = fmt.Sprintf("… %d bytes omitted …\n%s", dropped, text)
	}
	return strings.TrimRight(text, "\n")
}

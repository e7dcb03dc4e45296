package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func record(n int, text string) []byte {
	return fmt.Appendf(nil, `{"id":"run.1.%d","payload":{"type":"pi.assistant","text":%q}}`, n, text)
}

func TestSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, resumed, err := openSpool(dir, 1, 0)
	if err != nil || resumed {
		t.Fatalf("a new spool is resumed: %v, %v", resumed, err)
	}
	for range 5 {
		n := s.take()
		s.add(record(n, strings.Repeat("x", 1000)), false)
	}
	records, size, err := s.peek()
	if err != nil || len(records) != 5 {
		t.Fatalf("it has %d records: %v", len(records), err)
	}
	s.accept(2, size*2/5)
	if _, err := s.file.WriteAt([]byte(`{"id":"run.1.9`), s.size); err != nil { // the runner was killed while it wrote
		t.Fatal(err)
	}
	s, resumed, err = openSpool(dir, 1, 0)
	if err != nil || !resumed || s.ended {
		t.Fatalf("after a kill: %v, %v", resumed, err)
	}
	if records, _, err = s.peek(); err != nil || len(records) != 3 || !strings.Contains(string(records[0]), "run.1.2") || s.index() != 5 {
		t.Fatalf("it has %d records, and goes on at %d: %v", len(records), s.index(), err)
	}
	// Without room, records are lost and counted, but the report is kept.
	s.limit, s.restSize = s.size-s.read, maxRest
	for range 4 {
		s.add(record(s.take(), "lost"), false)
	}
	if n := s.takeLost(); n != 0 {
		t.Errorf("%d are lost while there is no room to say so", n)
	}
	s.add([]byte(`{"id":"run.1.99","payload":{"type":"signal.thread.run_finished"}}`), true)
	records, size, err = s.peek()
	if err != nil || len(records) != 4 {
		t.Fatalf("it has %d records: %v", len(records), err)
	}
	s.accept(4, size)
	if n := s.takeLost(); n != 4 || !s.finished() {
		t.Errorf("%d are lost, and it is finished: %v", n, s.finished())
	}
	if s, _, err = openSpool(dir, 1, 0); err != nil || !s.ended || !s.finished() || s.index() != 100 {
		t.Errorf("what ended has not: %v, %v, %d", s.ended, err, s.index())
	}
}

// While the door is away, a model may write any amount of text. Watchers lose text, and the runner's memory does not grow.
func TestStreamedTextThatIsNotPosted(t *testing.T) {
	t.Parallel()
	p := newPoster(nil, nil, nil, "bot")
	for range 20_000 {
		p.chunk("run.1.0", entry.PiChunk{Kind: "text", Text: strings.Repeat("x", 1000)})
	}
	if kept := int64(len(p.lines)); kept > maxLines || p.offset+kept < 20_000_000 {
		t.Errorf("of 20 MB of text, %d bytes are kept, after %d that are lost", kept, p.offset)
	}
}

func TestWithoutNUL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`"a\u0000b"`: `"a\ufffdb"`, `"a\\u0000b"`: `"a\\u0000b"`, `"\\\u0000"`: `"\\\ufffd"`, `"\u00001"`: `"\ufffd1"`, `"x\`: `"x\`} {
		if got := string(withoutNUL([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// keeper is a door that records what it receives, in order: the ids of entries, and those of full texts with a "+".
type keeper struct {
	mu    sync.Mutex
	sent  []string
	texts map[string]string
	// answer returns the status for a text, by the number of earlier ones.
	answer func(n int) int
	n      int
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if id := r.URL.Query().Get("whole"); id != "" {
		status := http.StatusNoContent
		if k.answer != nil {
			status = k.answer(k.n)
		}
		if k.n++; status == http.StatusNoContent {
			k.sent, k.texts[id] = append(k.sent, "+"+id), string(body)
		}
		w.WriteHeader(status)
		return
	}
	for _, r := range strings.Split(string(body), `"id":"`)[1:] {
		if id, _, _ := strings.Cut(r, `"`); strings.HasPrefix(id, "run.") && !strings.Contains(id, "beat") {
			k.sent = append(k.sent, id)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// posting returns a run whose results are posted to k.
func posting(t *testing.T, k *keeper, dir string) *run {
	t.Helper()
	k.texts = map[string]string{}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	s, _, err := openSpool(dir, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(server.URL, "the-token-of-this-run")
	return &run{setup: &setup{Spec: Spec{Epoch: 1}}, door: d, spool: s, post: newPoster(d, s, newWholes(filepath.Join(dir, "whole-1")), "me"), calls: map[string]call{}, queue: entry.NewQueue("me", 0)}
}

// end reports that the run has ended.
func (r *run) end() {
	r.put(entry.RunEntryID(1, r.spool.take()), runFinished{RunFinished: entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted}}, true)
}

// deliver ends the run, and waits until the door has received everything.
func (r *run) deliver(t *testing.T) {
	t.Helper()
	r.end()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	go r.post.run(ctx)
	select {
	case <-r.post.drained:
	case <-r.post.over:
		t.Fatal(r.post.why)
	case <-ctx.Done():
		t.Fatal("it is not delivered")
	}
}

func result(text string) entry.PiToolResult {
	return entry.PiToolResult{Harness: "pi", ToolCallID: "1", ToolName: "bash", Content: []entry.PiBlock{entry.PiText(text)}}
}

var long = strings.Repeat("0123456789abcdef\n", 10_000) + "the-token-of-this-run"

func TestAWholeResultGoesBeforeItsEntry(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	dir := t.TempDir()
	r := posting(t, k, dir)
	r.add(result("short"))
	r.add(result(long))
	r.add(entry.PiAssistant{StopReason: entry.PiStopped, Content: []entry.PiBlock{entry.PiText("done")}})
	r.deliver(t)
	if want := []string{"+run.1.1", "run.1.0", "run.1.1", "run.1.2", "run.1.3"}; !slices.Equal(k.sent, want) {
		t.Errorf("the door gets %q, want %q", k.sent, want)
	}
	if got := k.texts["run.1.1"]; len(got) != len(long) || strings.Contains(got, "the-token") {
		t.Errorf("it gets %d bytes, which end in %q", len(got), got[len(got)-30:])
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "whole-1")); len(left) > 0 || r.post.wholes.size != 0 {
		t.Errorf("%d files of %d bytes are left", len(left), r.post.wholes.size)
	}
}

// A call's arguments go before the answer that has the call, and its result after it.
func TestWholeArgumentsGoBeforeTheirAnswer(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	r := posting(t, k, t.TempDir())
	call := func(id, text string) entry.PiBlock {
		arguments, _ := json.Marshal(map[string]string{"path": "a.txt", "content": text}) // texts
		return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: "write", Arguments: arguments}
	}
	text := long + long
	r.add(entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{call("0", "short"), entry.PiText("I write it."), call("1", text), call("2", text)}})
	if marked := r.calls["1"].block; marked.WholeBytes < int64(len(text)) || len(marked.Arguments) > 100<<10 || !strings.Contains(string(marked.Arguments), `"path":"a.txt"`) {
		t.Errorf("the log has %d of %d bytes", len(marked.Arguments), marked.WholeBytes)
	}
	r.add(result(long))
	r.deliver(t)
	if want := []string{"+run.1.0.call1.arguments", "+run.1.0.call2.arguments", "+run.1.0.call1", "run.1.0", "run.1.0.call1", "run.1.1"}; !slices.Equal(k.sent, want) {
		t.Errorf("the door gets %q, want %q", k.sent, want)
	}
	var kept struct{ Content string }
	if err := json.Unmarshal([]byte(k.texts["run.1.0.call1.arguments"]), &kept); err != nil || len(kept.Content) != len(text) || strings.Contains(kept.Content, "the-token") {
		t.Errorf("it gets %d bytes: %v", len(kept.Content), err)
	}
}

func TestAWholeResultOutlivesItsRunner(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	dir := t.TempDir()
	posting(t, k, dir).add(result(long))
	r := posting(t, k, dir) // it was killed before it posted anything
	if r.post.wholes.size != int64(len(long)) {
		t.Errorf("%d bytes wait", r.post.wholes.size)
	}
	r.deliver(t)
	if want := []string{"+run.1.0", "run.1.0", "run.1.1"}; !slices.Equal(k.sent, want) {
		t.Errorf("the door gets %q, want %q", k.sent, want)
	}
}

// No failure of a full result holds up the log.
func TestAWholeResultThatIsNotTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(n int) int
		spoil  func(t *testing.T, path string)
		taken  bool
	}{
		"because the house has no room for it":    {answer: func(int) int { return http.StatusRequestEntityTooLarge }},
		"because the store of files is broken":    {answer: func(int) int { return http.StatusInternalServerError }},
		"at first, because the server restarts":   {answer: func(n int) int { return []int{503, 204}[min(n, 1)] }, taken: true},
		"because the agent deleted it":            {spoil: func(t *testing.T, path string) { check(t, os.Remove(path)) }},
		"because the agent put a pipe there":      {spoil: func(t *testing.T, path string) { check(t, os.Remove(path)); check(t, syscall.Mkfifo(path, 0o600)) }},
		"because the agent put a link there":      {spoil: func(t *testing.T, path string) { check(t, os.Remove(path)); check(t, os.Symlink("/dev/zero", path)) }},
		"because the agent put a directory there": {spoil: func(t *testing.T, path string) { check(t, os.Remove(path)); check(t, os.Mkdir(path, 0o700)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{answer: c.answer}
			dir := t.TempDir()
			r := posting(t, k, dir)
			r.post.wholes.patience = 300 * time.Millisecond
			if c.taken {
				r.post.wholes.patience = time.Minute
			}
			r.add(result(long))
			if c.spoil != nil {
				c.spoil(t, filepath.Join(dir, "whole-1", "run.1.0"))
			}
			r.deliver(t)
			want := []string{"run.1.0", "run.1.1"}
			if c.taken {
				want = append([]string{"+run.1.0"}, want...)
			}
			if !slices.Equal(k.sent, want) {
				t.Errorf("the door gets %q, want %q", k.sent, want)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// While the door is unreachable, full results wait on disk, up to a limit. Later ones have only their entries.
func TestWholeResultsThatWaitHaveALimit(t *testing.T) {
	t.Parallel()
	w := newWholes(t.TempDir())
	text := make([]byte, 16<<20)
	for n := range 10 {
		if kept, want := w.keep(fmt.Sprint("run.1.", n), text), n < maxWholes/len(text); kept != want {
			t.Fatalf("text %d is kept: %v", n, kept)
		}
	}
	if harness.Whole(result(strings.Repeat("x", 1000))) != "" {
		t.Error("a short result is kept whole")
	}
}

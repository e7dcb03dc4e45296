//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// follower is a tail, over all its connections.
type follower struct {
	*connection
	log, name string
	seen      []Record // of its own goroutine, until it ended
	// reached is the last position received.
	reached atomic.Int64
}

// follow starts tails of both logs, in all the ways that there are.
func (w *world) follow() {
	for _, how := range []struct {
		name, log string
		run       func(*follower)
	}{
		{"rpc", w.threadLog, (*follower).rpc},
		{"rpc too", w.threadLog, (*follower).rpc},
		{"events", w.threadLog, (*follower).events},
		{"long-poll", w.threadLog, (*follower).longPoll},
		{"events", w.ownLog, (*follower).events},
		{"long-poll", w.ownLog, (*follower).longPoll},
	} {
		w.followBy(how.name, how.log, how.run)
	}
}

func (w *world) followBy(name, log string, run func(*follower)) *follower {
	f := &follower{connection: w.connect(), name: name, log: log}
	w.tails = append(w.tails, f)
	w.follows.Go(func() {
		for w.following.Err() == nil {
			run(f)
			f.leave(w.following)
		}
	})
	return f
}

func (f *follower) received(seq int64, text string) {
	f.seen = append(f.seen, Record{seq, label(text)})
	f.reached.Store(seq)
}

// rpc follows through the Go client, which reconnects by itself. If there is another server, it switches to it.
func (f *follower) rpc() {
	w := f.world
	ctx, leave := context.WithCancel(w.following)
	defer leave()
	lost := arbe.OnDisconnect(func(error, time.Duration) {
		if len(w.servers) > 1 {
			leave()
		}
	})
	for event, err := range f.server().client(f.http).Tail(ctx, w.thread, f.reached.Load(), lost) {
		if err != nil {
			if ctx.Err() == nil {
				w.report("tail %s gave up: %v", f.name, err)
			}
			return
		}
		if e := event.GetEntry(); e != nil {
			var payload struct{ Text string }
			if err := json.Unmarshal([]byte(e.Payload), &payload); err != nil {
				w.report("tail %s: %v in %.200q", f.name, err, e.Payload)
			}
			f.received(e.Seq, payload.Text)
		}
	}
}

// get requests the records after the follower's position. It returns nil if that failed.
func (f *follower) get(live string) *http.Response {
	what := fmt.Sprintf("%s?live=%s&offset=%016d_%016d", f.log, live, f.reached.Load(), 0)
	res, err := f.http.Do(f.server().request(f.world.following, http.MethodGet, what, nil))
	if err != nil {
		return nil
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return res
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
	default:
		text, _ := io.ReadAll(res.Body)
		f.world.report("tail %s of %s: status %d: %s", f.name, f.log, res.StatusCode, text)
	}
	res.Body.Close()
	return nil
}

// events follows by server-sent events. A data event counts only after the control event that says where it ends,
// because a client that reconnects continues from the last control event.
func (f *follower) events() {
	res := f.get("sse")
	if res == nil {
		return
	}
	defer res.Body.Close()
	lines := bufio.NewReaderSize(res.Body, 64<<10)
	var kind, messages string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			kind = event
			continue
		}
		data, ok := strings.CutPrefix(line, "data:")
		switch {
		case !ok:
		case kind == "data":
			messages += data
		case kind == "control":
			var state struct{ StreamNextOffset string }
			if err := json.Unmarshal([]byte(data), &state); err != nil {
				f.world.report("tail %s of %s: a control event %q", f.name, f.log, data)
				return
			}
			f.take(messages, state.StreamNextOffset)
			messages = ""
		}
	}
}

// longPoll follows with one request after another.
func (f *follower) longPoll() {
	for f.world.following.Err() == nil {
		res := f.get("long-poll")
		if res == nil {
			return
		}
		text, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil {
			return
		}
		f.take(string(text), res.Header.Get("Stream-Next-Offset"))
	}
}

// take reads consecutive JSON arrays of messages that end at an offset.
func (f *follower) take(messages, offset string) {
	var all []json.RawMessage
	for decoder := json.NewDecoder(strings.NewReader(messages)); ; {
		var some []json.RawMessage
		err := decoder.Decode(&some)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.world.report("tail %s of %s: %.200q is no array of messages", f.name, f.log, messages)
			return
		}
		all = append(all, some...)
	}
	first := position(offset) - int64(len(all)) + 1
	for i, message := range all {
		seq := first + int64(i)
		// A message of the test's own stream is a payload; one of the thread's stream is an entry that has a payload.
		var m struct {
			Seq     int64
			Text    string
			Payload struct{ Text string }
		}
		if err := json.Unmarshal(message, &m); err != nil || f.log == f.world.threadLog && m.Seq != seq {
			f.world.report("tail %s of %s: %.200q came as number %d", f.name, f.log, message, seq)
		}
		f.received(seq, m.Text+m.Payload.Text)
	}
}

// printed is a tail in a process of its own: arbe thread entries list --follow.
type printed struct {
	*process
	follower *follower
	path     string
}

// print starts one. Its output is checked at the end of the run.
func (w *world) print() *printed {
	w.Helper()
	f := &follower{connection: w.connect(), name: "command line", log: w.threadLog}
	p := &printed{follower: f, path: filepath.Join(w.dir, "followed.json")}
	out, err := os.Create(p.path)
	if err != nil {
		w.Fatal(err)
	}
	defer out.Close() // the process has its own copy
	cmd := exec.Command(w.program, "thread", "entries", "list", w.thread, "--follow", "--json")
	cmd.Env = []string{"ARBE_HOST=" + f.server().url, "ARBE_TOKEN=" + f.server().token, "HOME=" + w.dir, "ARBE_DATA_DIR=" + filepath.Join(w.dir, "nobody")}
	cmd.Stdout = out
	if p.process, err = spawn(cmd); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.kill)
	w.prints = append(w.prints, p)
	return p
}

// look reads what was printed so far, and returns the position that it reached.
func (p *printed) look() (reached int64) {
	w := p.follower.world
	text, err := os.ReadFile(p.path)
	if err != nil {
		w.Fatal(err)
	}
	p.follower.seen = nil
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of the line is still to come
		}
		var entry struct {
			Seq     int64
			Payload struct{ Text string }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			w.Fatalf("the command line printed %q", line)
		}
		p.follower.received(entry.Seq, entry.Payload.Text)
	}
	return p.follower.reached.Load()
}

// look starts readers that ask repeatedly where the logs end.
func (w *world) look() {
	for log, end := range map[string]func(context.Context, *connection) (int64, error){w.threadLog: lastOfThread, w.ownLog: endOfStream} {
		c := w.connect()
		w.work.Go(func() {
			for w.writing.Err() == nil {
				w.lookOnce(c, log, end)
				select {
				case <-time.After(10 * time.Millisecond):
				case <-w.writing.Done():
				}
			}
		})
	}
}

func (w *world) lookOnce(c *connection, log string, end func(context.Context, *connection) (int64, error)) {
	ctx, cancel := context.WithTimeout(w.writing, tryWithin)
	defer cancel()
	r := Read{Log: log, Call: w.now()}
	var err error
	if r.End, err = end(ctx, c); err != nil {
		if errors.As(err, new(odd)) {
			w.report("looking at %s: %v", log, err)
		}
		c.leave(w.writing)
		return
	}
	r.Return = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Reads = append(w.history.Reads, r)
}

// lastOfThread asks for the end of the thread's log by RPC.
func lastOfThread(ctx context.Context, c *connection) (int64, error) {
	res, err := c.server().client(c.http).Entries.List(ctx, &arbev1.ListRequest{ThreadId: c.world.thread, Last: true, Limit: 1})
	switch code := connect.CodeOf(err); {
	case err == nil:
		return res.Tail, nil
	case !connect.IsWireError(err), code == connect.CodeUnavailable, code == connect.CodeDeadlineExceeded, code == connect.CodeCanceled:
		return 0, err
	}
	return 0, odd{err}
}

// endOfStream asks for the end of the other log at the stream door.
func endOfStream(ctx context.Context, c *connection) (int64, error) {
	res, err := c.http.Do(c.server().request(ctx, http.MethodHead, c.world.ownLog, nil))
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return position(res.Header.Get("Stream-Next-Offset")), nil
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, fmt.Errorf("status %d", res.StatusCode)
	}
	return 0, odd{fmt.Errorf("status %d", res.StatusCode)}
}

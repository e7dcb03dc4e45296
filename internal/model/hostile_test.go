package model_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// spoken are all dialects, as the scripted server names them.
var spoken = map[model.Dialect]modeltest.Dialect{
	model.Messages: modeltest.Messages, model.Chat: modeltest.Chat, model.Responses: modeltest.Responses, model.Gemini: modeltest.Gemini,
}

// TestNoAnswerHarmsTheServer: whoever names a server of models decides what it sends.
func TestNoAnswerHarmsTheServer(t *testing.T) {
	t.Parallel()
	for d, script := range spoken {
		for name, reply := range modeltest.Hostile(script) {
			t.Run(string(d)+"/"+name, func(t *testing.T) {
				t.Parallel()
				var sent atomic.Int64
				if write := reply.Stream; write != nil {
					reply.Stream = func(pass func(string) bool) {
						write(func(piece string) bool { sent.Add(int64(len(piece))); return pass(piece) })
					}
				}
				s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return reply })
				a, err := quick().Stream(within(t), at(s, d), "any", ask("?"), nil)
				var failed *model.Error
				if err == nil && a.Message.StopReason != entry.PiLength || err != nil && (!errors.As(err, &failed) || failed.Kind != model.Unreadable && failed.Kind != model.Cut) {
					t.Errorf("it ends with %q (%v)", a.Message.StopReason, err)
				}
				// Some of it is in buffers of the network.
				if n := sent.Load(); n > 24<<20 {
					t.Errorf("%d bytes were read of it", n)
				}
				if len(s.Requests()) != 1 {
					t.Errorf("it was asked %d times", len(s.Requests()))
				}
			})
		}
	}
}

// script is a response that comes without a network.
type script struct {
	body   []byte
	header http.Header
}

func (s script) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"text/event-stream"}}
	for name, values := range s.header {
		header[name] = values
	}
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(bytes.NewReader(s.body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}

// spent is how many bytes were allocated while f ran.
func spent(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// endpoint is any server in a dialect.
func endpoint(d model.Dialect) model.Endpoint {
	return model.Endpoint{Provider: model.Compatible, Name: "any", BaseURL: "https://models.example.com/v1", Dialect: d}
}

// FuzzAnswer: no response causes a panic, or costs more memory than a fixed amount plus a multiple of its size.
func FuzzAnswer(f *testing.F) {
	order := []model.Dialect{model.Chat, model.Messages, model.Responses, model.Gemini}
	for i, d := range order {
		for _, reply := range modeltest.Hostile(spoken[d]) {
			if len(reply.Garbage) > 64<<10 || reply.Header != nil {
				continue // the test above sends those
			}
			if reply.Garbage != "" {
				f.Add(byte(i), []byte(reply.Garbage), uint16(1))
			} else if reply.Stream != nil {
				var all strings.Builder
				reply.Stream(func(piece string) bool { all.WriteString(piece); return all.Len() < 16<<10 })
				f.Add(byte(i), []byte(all.String()), uint16(40))
			}
		}
	}
	f.Fuzz(func(t *testing.T, dialect byte, body []byte, times uint16) {
		times = min(times, uint16(1+(32<<10)/(len(body)+1)))
		body = bytes.Repeat(body, int(times))
		d := order[int(dialect)%len(order)]
		pieces := 0
		var a model.Answer
		cost := spent(func() {
			a, _ = quick().Over(script{body: body}).Stream(context.Background(), endpoint(d), "any", ask("?"), func(model.Delta) { pieces++ })
		})
		if most := uint64(16<<20 + 2000*len(body)); cost > most {
			t.Errorf("%d bytes were allocated for %d bytes", cost, len(body))
		}
		if pieces > len(body) {
			t.Errorf("%d pieces came of %d bytes", pieces, len(body))
		}
		if a.Message.Content != nil {
			if err := entry.Check(entry.NewDraft("", "", a.Message), entry.Server); err != nil {
				t.Errorf("what is kept cannot be stored: %v", err)
			}
		}
	})
}

// TestAnIndexIsNoSize: on a server that trusts it, this index allocates a terabyte.
func TestAnIndexIsNoSize(t *testing.T) {
	// Not parallel: it measures memory.
	for d, script_ := range spoken {
		reply := modeltest.Hostile(script_)["an index of two thousand millions"]
		if cost := spent(func() {
			_, err := quick().Over(script{body: []byte(reply.Garbage)}).Stream(within(t), endpoint(d), "any", ask("?"), nil)
			if err == nil || !strings.Contains(err.Error(), "whose index is not from 0 to") {
				t.Errorf("%s: %v", d, err)
			}
		}); cost > 4<<20 {
			t.Errorf("%s: it allocated %d bytes", d, cost)
		}
	}
}

// TestAnAnswerOfTinyPiecesEnds: the limit of an answer holds however small its pieces are.
func TestAnAnswerOfTinyPiecesEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d model.Dialect) {
		s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Text: strings.Repeat("x", 1900) + strings.Repeat(" ", 100_000)}
		})
		pieces := 0
		a, err := (&model.Client{MaxAnswer: 2000 + 128}).Stream(within(t), at(s, d), "any", ask("?"), func(model.Delta) { pieces++ })
		if err != nil || a.Message.StopReason != entry.PiLength || pieces > 30_000 {
			t.Errorf("%d pieces, and it ends with %q (%v)", pieces, a.Message.StopReason, err)
		}
	})
}

// drip is a response whose pieces come when the test lets them.
type drip struct {
	http.RoundTripper
	pieces chan string
	ctx    context.Context
}

func (d *drip) RoundTrip(r *http.Request) (*http.Response, error) {
	d.ctx = r.Context()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: struct {
		io.Reader
		io.Closer
	}{d, io.NopCloser(nil)}}, nil
}

func (d *drip) Read(p []byte) (int, error) {
	select {
	case piece, ok := <-d.pieces:
		if !ok {
			return 0, io.EOF
		}
		return copy(p, piece), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

// TestAnAnswerThatDripsEnds: it would hold one of the workers that all houses share.
func TestAnAnswerThatDripsEnds(t *testing.T) {
	t.Parallel()
	for piece, want := range map[string]model.Kind{
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}`: model.Slow,
		`{"id":"c","choices":[]}`:                                    model.Idle, // it only shows that it is there
	} {
		pieces := make(chan string)
		go func() {
			tick := time.NewTicker(10 * time.Millisecond) // so that the provider is never silent
			defer tick.Stop()
			for range tick.C {
				select {
				case pieces <- "data: " + piece + "\n\n":
				case <-t.Context().Done():
					return
				}
			}
		}()
		client := &model.Client{MinRate: 1e6, SlowTime: 300 * time.Millisecond, IdleTimeout: time.Hour}
		a, err := client.Over(&drip{pieces: pieces}).Stream(within(t), endpoint(model.Chat), "any", ask("?"), nil)
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Kind != want || a.Message.StopReason != entry.PiError {
			t.Errorf("%s: %+v (%v)", piece, a.Message, err)
		}
	}
}

// TestHeadersHaveLimits: a response has headers before it has a body.
func TestHeadersHaveLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client *model.Client
		kind   model.Kind
		write  func(net.Conn)
	}{
		"endless headers": {&model.Client{}, model.Unreachable, func(c net.Conn) {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}},
		"slow headers": {&model.Client{HeaderTimeout: 200 * time.Millisecond}, model.Idle, func(c net.Conn) {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(c, "X-%d: x\r\n", i); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()                          //nolint:errcheck // the test is over
						conn.Read(make([]byte, 1))                  //nolint:errcheck // a response before its request is another attack
						io.WriteString(conn, "HTTP/1.1 200 OK\r\n") //nolint:errcheck // the client went
						c.write(conn)
					}()
				}
			}()
			ctx, cancel := context.WithTimeout(within(t), time.Minute)
			defer cancel()
			e := endpoint(model.Chat)
			e.BaseURL, e.Trusted = "http://"+l.Addr().String()+"/v1", true
			_, err = c.client.Stream(ctx, e, "any", ask("?"), nil)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != c.kind {
				t.Errorf("%v, want %s", err, c.kind)
			}
		})
	}
}

// BenchmarkEvents measures reading an answer, checks included, and the checks of its events alone (check).
func BenchmarkEvents(b *testing.B) {
	for d, script_ := range spoken {
		s := modeltest.Start(func(*modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Text: strings.Repeat("word ", 2000)}
		})
		body := record(b, s, d, script_)
		s.Close()
		b.Run(string(d), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := quick().Over(script{body: body}).Stream(b.Context(), endpoint(d), "any", ask("?"), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(string(d)+"/check", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := model.Check(bytes.NewReader(body), d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// record returns the response of a server in a dialect.
func record(b *testing.B, s *modeltest.Server, d model.Dialect, script_ modeltest.Dialect) []byte {
	path, body := "/v1/chat/completions", `{"model":"any","stream":true}`
	switch script_ {
	case modeltest.Messages:
		path, body = "/v1/messages", `{"model":"any","stream":true,"max_tokens":1}`
	case modeltest.Responses:
		path = "/v1/responses"
	case modeltest.Gemini:
		path = "/v1beta/models/any:streamGenerateContent"
	}
	response, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	all, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		b.Fatalf("%s: %s %v", d, all, err)
	}
	return all
}

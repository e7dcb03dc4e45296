//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// tryWithin bounds one try of an append.
const tryWithin = 15 * time.Second

// sender is a way to append.
type sender interface {
	// log is the name of the stream.
	log() string
	// batch is how many records an append has at most.
	batch() int
	// send tries an append once, and returns the position of its last record, or 0 if the answer does not have it.
	// A refused error says that nothing was written. With bad, the append is one that must be refused.
	send(ctx context.Context, c *connection, texts []string, bad bool) (last int64, err error)
	// settle goes on to the next append; known says that the last one was acknowledged, or refused.
	settle(known bool)
}

// refused is the server's word that nothing was written.
type refused struct{ error }

// odd is an answer that a client should never get.
type odd struct{ error }

// writer appends again and again.
type writer struct {
	*connection
	name string
	how  sender
	rng  *rand.Rand
	// size is how many bytes a record has at most.
	size int
	// through is when the last acknowledged append was called.
	through atomic.Int64
}

func (w *world) newWriter(size int, how sender) *writer {
	c := w.connect()
	return &writer{connection: c, name: "w" + strconv.Itoa(c.number), how: how, rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0)), size: size}
}

// write starts writers.
func (w *world) write(size int, how ...sender) {
	for _, h := range how {
		wr := w.newWriter(size, h)
		w.writers = append(w.writers, wr)
		w.work.Go(wr.run)
	}
}

func (wr *writer) run() {
	for n := 0; wr.world.writing.Err() == nil; n++ {
		wr.appendBatch(n)
		select {
		case <-time.After(time.Duration(wr.rng.IntN(10)) * time.Millisecond):
		case <-wr.world.writing.Done():
		}
	}
}

// appendBatch tries an append until its outcome is known. It gives up a few earlier, like a client that crashes.
func (wr *writer) appendBatch(n int) {
	w := wr.world
	bad := wr.rng.IntN(20) == 0
	a := Append{Log: wr.how.log(), Writer: wr.name, Call: w.now(), Outcome: Unknown}
	var texts []string
	for i := range 1 + wr.rng.IntN(wr.how.batch()) {
		name := fmt.Sprintf("%s-%d.%d", wr.name, n, i)
		a.Texts = append(a.Texts, name)
		texts = append(texts, name+" "+strings.Repeat("x", wr.rng.IntN(wr.size)))
	}
	patience := 1 << wr.rng.IntN(10)
	for try := 1; a.Outcome == Unknown && (try == 1 || try <= patience && w.writing.Err() == nil); try++ {
		ctx, cancel := context.WithTimeout(context.Background(), tryWithin)
		var err error
		a.Last, err = wr.how.send(ctx, wr.connection, texts, bad)
		cancel()
		switch {
		case err == nil:
			a.Outcome = Acknowledged
		case errors.As(err, new(refused)):
			if a.Outcome = Refused; !bad {
				w.report("%s: a good append was refused: %v", wr.name, err)
			}
		default:
			if errors.As(err, new(odd)) {
				w.report("%s: %v", wr.name, err)
			}
			wr.leave(w.writing)
		}
	}
	a.Return = w.now()
	wr.how.settle(a.Outcome != Unknown)
	if bad {
		if a.Outcome == Acknowledged {
			w.report("%s: a bad append was acknowledged", wr.name)
		}
		a.Outcome = Refused // whatever was answered, it may never be there
	} else if a.Outcome == Acknowledged {
		wr.through.Store(int64(a.Call))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Appends = append(w.history.Appends, a)
}

// rpc writes a thread through the Go client. The id of an entry is its text's name, so a try again is harmless.
type rpc struct{ world *world }

func (s *rpc) log() string { return s.world.threadLog }
func (s *rpc) batch() int  { return 1 }
func (s *rpc) settle(bool) {}

func (s *rpc) send(ctx context.Context, c *connection, texts []string, bad bool) (last int64, err error) {
	req := &arbev1.AppendRequest{ThreadId: s.world.thread, Id: label(texts[0]), Type: "chat", Payload: string(record(texts[0]))}
	if bad {
		req.Type = "gossip"
	}
	res, err := c.server().client(c.http).Entries.Append(ctx, req)
	switch code := connect.CodeOf(err); {
	case err == nil:
		return res.Entry.Seq, nil
	case !connect.IsWireError(err), code == connect.CodeUnavailable, code == connect.CodeDeadlineExceeded:
		return 0, err
	case code == connect.CodeResourceExhausted:
		c.world.full.Add(1)
		return 0, err
	case code == connect.CodeInvalidArgument:
		return 0, refused{err}
	}
	return 0, odd{err}
}

// record is a record as its log's content.
func record(text string) []byte {
	payload, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err)
	}
	return payload
}

// posts writes a thread through the stream door, as the protocol's clients do: some entries with ids of ours.
type posts struct{ world *world }

func (s *posts) log() string { return s.world.threadLog }
func (s *posts) batch() int  { return 3 }
func (s *posts) settle(bool) {}

func (s *posts) send(ctx context.Context, c *connection, texts []string, bad bool) (last int64, err error) {
	var entries []map[string]any
	for i, text := range texts {
		kind := "chat"
		if bad && i+1 == len(texts) { // the good ones before it are not written either
			kind = "gossip"
		}
		entries = append(entries, map[string]any{"id": label(text), "payload": map[string]string{"type": kind, "text": text}})
	}
	body, _ := json.Marshal(entries)
	return post(c, c.server().request(ctx, http.MethodPost, s.log(), body))
}

// produces writes the stream of its own as an idempotent producer, which need not give its messages ids.
type produces struct {
	world      *world
	name       string
	epoch, seq int64
}

func (s *produces) log() string { return s.world.ownLog }
func (s *produces) batch() int  { return 3 }

// settle begins a new epoch after an append that was given up. If that append was not written yet, the new epoch
// keeps it out.
func (s *produces) settle(known bool) {
	if !known {
		s.epoch, s.seq = s.epoch+1, 0
	}
}

func (s *produces) send(ctx context.Context, c *connection, texts []string, bad bool) (last int64, err error) {
	messages := make([][]byte, len(texts))
	for i, text := range texts {
		messages[i] = record(text)
	}
	seq := s.seq
	if bad {
		seq += 7 // those between are missing
	}
	req := c.server().request(ctx, http.MethodPost, s.log(), []byte("["+string(bytes.Join(messages, []byte(",")))+"]"))
	req.Header.Set("Producer-Id", s.name)
	req.Header.Set("Producer-Epoch", strconv.FormatInt(s.epoch, 10))
	req.Header.Set("Producer-Seq", strconv.FormatInt(seq, 10))
	if last, err = post(c, req); err == nil && !bad {
		s.seq++
	}
	return last, err
}

// post sends an append to the stream door.
func post(c *connection, req *http.Request) (last int64, err error) {
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	failed := fmt.Errorf("status %d: %s", res.StatusCode, text)
	switch res.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		if req.Header.Get("Producer-Id") != "" && res.StatusCode == http.StatusNoContent {
			return 0, nil // it was written before: the answer tells where the stream ends now
		}
		return position(res.Header.Get("Stream-Next-Offset")), nil
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, failed
	case http.StatusTooManyRequests:
		c.world.full.Add(1)
		return 0, failed
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusBadRequest:
		return 0, refused{failed}
	}
	return 0, odd{failed}
}

// position is the position of the record before an offset.
func position(offset string) int64 {
	seq, _, _ := strings.Cut(offset, "_")
	n, err := strconv.ParseInt(seq, 10, 64)
	if err != nil {
		return -1 // which is nowhere
	}
	return n
}

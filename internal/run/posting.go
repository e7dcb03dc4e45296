package run

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/thread"
)

// maxPostings limits how many runs are remembered. A forgotten one is read again.
const maxPostings = 10_000

// of returns the state of a run.
func (p *posts) of(ctx context.Context, r *Runs, by Poster) (*posting, error) {
	p.mu.Lock()
	known := p.byThread[by.Thread]
	p.mu.Unlock()
	if known != nil && known.epoch == by.Epoch {
		return known, nil
	}
	scope := db.Scope{House: by.House, Agent: by.Agent}
	th, err := r.config.Threads.Get(ctx, scope, by.Thread)
	if err != nil {
		return nil, err
	}
	if th.Run.Epoch != by.Epoch || th.Status != thread.Running {
		return nil, fault.New(fault.Forbidden, "this run is over", "stop the agent").WithReason(fault.RunEnded)
	}
	known = &posting{epoch: by.Epoch, begunEntries: th.Run.Entries, begunBytes: th.Run.Bytes, beaten: !th.Run.HeartbeatAt.IsZero()}
	if known.redactor, err = r.redactorOf(ctx, scope, by.Thread); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byThread) >= maxPostings {
		clear(p.byThread)
	}
	p.byThread[by.Thread] = known
	return known, nil
}

func (p *posts) forget(threadID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byThread, threadID)
}

// first reports, once, that the run has posted no heartbeat.
func (p *posting) first() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.beaten
	p.beaten = true
	return first
}

// count adds a post's entries and bytes, and returns the run's totals.
func (p *posting) count(entries int, size int64) (int64, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freshEntries, p.freshBytes = p.freshEntries+int64(entries), p.freshBytes+size
	return p.begunEntries + p.freshEntries, p.begunBytes + p.freshBytes
}

// leastKept is the least number of bytes that a kept text counts: even a short text has a record that takes up space.
const leastKept = 4096

// mayKeep counts a kept text as an entry of this size, unless the run would exceed its limits.
func (p *posting) mayKeep(size int64, l Limits) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	size = max(size, leastKept)
	if p.begunEntries+p.freshEntries+1 > int64(l.Entries) || p.begunBytes+p.freshBytes+size > int64(l.Bytes) {
		return false
	}
	p.freshEntries, p.freshBytes = p.freshEntries+1, p.freshBytes+size
	return true
}

// take returns the counts that the row does not have yet; giveBack undoes it.
func (p *posting) take() (entries, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries, size = p.freshEntries, p.freshBytes
	p.begunEntries, p.begunBytes = p.begunEntries+entries, p.begunBytes+size
	p.freshEntries, p.freshBytes = 0, 0
	return entries, size
}

func (p *posting) giveBack(entries, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begunEntries, p.begunBytes = p.begunEntries-entries, p.begunBytes-size
	p.freshEntries, p.freshBytes = p.freshEntries+entries, p.freshBytes+size
}

// redactorOf returns a redactor for the secrets that runs of a thread receive.
func (r *Runs) redactorOf(ctx context.Context, scope db.Scope, threadID string) (*secret.Redactor, error) {
	if r.config.Secrets == nil {
		return nil, nil
	}
	around, err := r.config.Boxes.Surroundings(ctx, scope, threadID)
	switch fault.CodeOf(err) {
	case fault.Precondition, fault.NotFound:
		return nil, nil // it has no environment any more
	}
	if err != nil || len(around.Environment.Recipe.Secrets) == 0 {
		return nil, err
	}
	received, err := r.config.Secrets.Receive(ctx, scope.House, around.Environment.Recipe.Secrets)
	return received.Redactor, err
}

// redacted removes secrets from the strings of a JSON text. It leaves property names, which the entry kind defines.
func redacted(from *secret.Redactor, text json.RawMessage) json.RawMessage {
	if from == nil {
		return text
	}
	var parsed any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&parsed) != nil {
		return text // it is refused later as invalid JSON
	}
	found := false
	if parsed = redactedValue(from, parsed, &found); !found {
		return text
	}
	without, _ := json.Marshal(parsed) // cannot fail, because it was just decoded
	return without
}

// redactedValue removes secrets from a parsed JSON value, and reports in found whether there were any.
func redactedValue(from *secret.Redactor, v any, found *bool) any {
	switch v := v.(type) {
	case string:
		without := from.String(v)
		*found = *found || without != v
		return without
	case []any:
		for i := range v {
			v[i] = redactedValue(from, v[i], found)
		}
	case map[string]any:
		for name := range v {
			v[name] = redactedValue(from, v[name], found)
		}
	}
	return v
}

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file receives the posts of runners. An agent can run any program in its runner's sandbox, so the server trusts a
// runner only with its own run. It writes to its own thread, as its bot, within the limits of a run. The ids and epochs
// of its entries must be those of its run, and their kinds a runner's. Secrets that the run received are removed.

// chunkType is the type of a post with a piece of an entry that will follow. It is not stored.
const chunkType = "pi.chunk"

// chunk is such a piece. The post's id is the id of the coming entry, "~" and the call; see [entry.StepDelta].
type chunk struct {
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

// maxChunk limits a piece, in bytes.
const maxChunk = 256 << 10

// Accept handles a runner's post, all or nothing. Entries go to the log. Only the first heartbeat goes to the log,
// and the row keeps the time of the last one. A report ends the run. Pieces of coming entries reach the watchers.
//
// Errors: a [fault.Forbidden] if the run is over, or may not write such an entry; a [fault.Invalid] for a malformed
// post; and those of [stream.Log.Write].
func (r *Runs) Accept(ctx context.Context, by Poster, w stream.Write) (done stream.Written, err error) {
	done, err = r.accept(ctx, by, w)
	switch fault.CodeOf(err) {
	case fault.Internal, fault.Unavailable:
		r.sights.alive(by.Thread)
	}
	return done, err
}

func (r *Runs) accept(ctx context.Context, by Poster, w stream.Write) (done stream.Written, err error) {
	p, err := r.posts.of(ctx, r, by)
	if err != nil {
		return done, err
	}
	sorted, err := p.sort(by, w.Content)
	if err != nil {
		return done, err
	}
	if err := r.bound(ctx, by, p, sorted); err != nil {
		return done, err
	}
	if err := r.nameKept(ctx, by, sorted.entries); err != nil {
		return done, err
	}
	if done, err = r.store(ctx, by, sorted, w); err != nil {
		return done, err
	}
	switch {
	case sorted.report != nil:
		err = r.report(ctx, by, sorted)
	case sorted.beat != nil:
		err = r.beat(ctx, by, p, *sorted.beat)
	}
	return done, err
}

// store publishes and writes what was posted, except for a report.
func (r *Runs) store(ctx context.Context, by Poster, sorted sorted, w stream.Write) (done stream.Written, err error) {
	ref := log(by.House, by.Thread)
	for _, d := range sorted.deltas {
		_ = r.config.Log.Publish(ctx, ref, d) // it may be lost, because the entry has all of it
	}
	w.Content = sorted.entries
	if sorted.taken != nil {
		if err := r.take(ctx, by, sorted.entries[0], *sorted.taken); err != nil {
			return done, err
		}
		w.Content = nil
	}
	if sorted.asks && sorted.report == nil {
		if err := r.ask(ctx, by, sorted.entries); err != nil {
			return done, err
		}
		w.Content = nil
	}
	if sorted.report == nil && len(w.Content) > 0 {
		return r.config.Log.Write(ctx, ref, w)
	}
	done.Stream, err = r.config.Log.Describe(ctx, ref)
	return done, err
}

// sorted has the parts of a post, by their treatment.
type sorted struct {
	entries []entry.Draft
	deltas  []stream.Delta
	beat    *entry.Heartbeat
	// report is a [entry.RunFinished], which must be the last of its post, and reportID its id.
	report   *entry.RunFinished
	reportID string
	// asks means that entries ask questions or withdraw some.
	asks bool
	// taken lists the messages that the runner takes for its agent. It must be posted alone.
	taken *entry.QueueTaken
	bytes int64
}

// sort checks a post, and sorts its parts.
func (p *posting) sort(by Poster, drafts []entry.Draft) (s sorted, err error) {
	for _, d := range drafts {
		if s.report != nil {
			return s, fault.New(fault.Invalid, "payload.type: a run's report is the last that it posts", "post it at the end")
		}
		d.Author = by.Agent
		if entry.RunOf(d.ID) != entry.RunID(by.Epoch) || d.ID == entry.RunEndID(by.Epoch) {
			return s, fault.Newf(fault.Invalid, "use "+entry.RunEntryID(by.Epoch, 0)+", and so on", "id: it is not one of run %d", by.Epoch)
		}
		if d.Type == chunkType {
			if err := s.addChunk(p, d); err != nil {
				return s, err
			}
			continue
		}
		if d.Type != (entry.QueueTaken{}).Type() { // it has only ids, which must match those of messages
			d.Payload = redacted(p.redactor, d.Payload)
		}
		if err := entry.Check(d, entry.Runner); err != nil {
			return s, err
		}
		s.bytes += int64(len(d.Payload))
		if err := s.add(p, by, d); err != nil {
			return s, err
		}
	}
	if s.taken != nil && len(drafts) > 1 {
		return s, fault.New(fault.Invalid, "payload.type: a post that takes messages has no other entries", "post the others before or after it")
	}
	return s, nil
}

// add adds a valid entry.
func (s *sorted) add(p *posting, by Poster, d entry.Draft) error {
	at := entry.Entry{Type: d.Type, Payload: d.Payload}
	if beat, ok := entry.As[entry.Heartbeat](at); ok {
		s.beat = &beat
		if p.first() { // the log has one, on whichever server it arrives
			s.entries = append(s.entries, entry.Draft{ID: entry.RunID(by.Epoch) + ".alive", Author: d.Author, Type: d.Type, Payload: d.Payload})
		} else {
			s.deltas = append(s.deltas, stream.Delta{EntryID: entry.BeatID(by.Epoch), Offset: time.Now().UnixMicro(), Data: append(bytes.Clone(d.Payload), '\n')})
		}
		return mine(by, beat.Epoch)
	}
	if report, ok := entry.As[entry.RunFinished](at); ok {
		s.report, s.reportID = &report, d.ID
		return mine(by, report.Epoch)
	}
	if taken, ok := entry.As[entry.QueueTaken](at); ok {
		s.taken, s.entries = &taken, append(s.entries, d)
		return mine(by, taken.Epoch)
	}
	if err := s.addAsked(by, d, at); err != nil {
		return err
	}
	s.entries = append(s.entries, entry.Confine(d))
	return nil
}

// addAsked notes an entry that asks or withdraws a question.
func (s *sorted) addAsked(by Poster, d entry.Draft, at entry.Entry) error {
	epoch, id := int64(0), ""
	if p, ok := entry.As[entry.PermissionAsked](at); ok {
		epoch, id = p.Epoch, entry.AskedID(p.CallID)
	} else if p, ok := entry.As[entry.PermissionAnswered](at); ok {
		epoch, id = p.Epoch, entry.AnsweredID(strings.TrimSuffix(d.ID, entry.AnsweredID("")))
	} else {
		return nil
	}
	if s.asks = true; id != d.ID {
		return fault.New(fault.Invalid, "id: it is not that of its call", "use the id of the call's result, and .asked or .answered")
	}
	return mine(by, epoch)
}

// mine returns an error for an entry about another run.
func mine(by Poster, epoch int64) error {
	if epoch == by.Epoch {
		return nil
	}
	return fault.Newf(fault.Forbidden, "use the epoch of the token", "epoch: this is the token of run %d, and not of %d", by.Epoch, epoch).WithReason(fault.RunEnded)
}

// addChunk adds a piece of an entry that will follow.
func (s *sorted) addChunk(p *posting, d entry.Draft) error {
	var c chunk
	_, _, ok := entry.StepDelta(d.ID)
	if json.Unmarshal(d.Payload, &c) != nil || !ok || c.Offset < 0 || len(c.Data) > maxChunk {
		return fault.New(fault.Invalid, "payload: it is not a piece of an entry", "send {type, offset, data}, with the id of the entry, ~ and the call")
	}
	s.deltas = append(s.deltas, stream.Delta{EntryID: d.ID, Offset: c.Offset, Data: []byte(p.redactor.String(c.Data))})
	return nil
}

// bound ends a run that exceeds its limits of writing.
func (r *Runs) bound(ctx context.Context, by Poster, p *posting, s sorted) error {
	entries, size := p.count(len(s.entries), s.bytes)
	l := r.config.Limits
	if entries <= int64(l.Entries) && size <= int64(l.Bytes) {
		return nil
	}
	why := fault.Newf(fault.Exhausted, "split the task", "the run has written more than %d entries or %d bytes", l.Entries, l.Bytes)
	if _, err := r.finish(ctx, by.House, by.Thread, by.Epoch, failed(by.Epoch, entry.PhaseExecution, why)); err != nil {
		return err
	}
	return fault.New(fault.Forbidden, "this run is over: it has written more than it may", "stop the agent").WithReason(fault.RunEnded)
}

// beat records a heartbeat on the row.
func (r *Runs) beat(ctx context.Context, by Poster, p *posting, b entry.Heartbeat) error {
	entries, size := p.take()
	err := r.config.DB.In(ctx, db.Scope{House: by.House, Agent: by.Agent}, func(tx pgx.Tx) error {
		cost, err := r.spentTx(ctx, tx, by.House, by.Thread, by.Epoch, nil)
		if err != nil {
			return err
		}
		return r.config.Threads.MoveRunTx(ctx, tx, by.Thread, by.Epoch, thread.Progress{
			Through: b.Through, Entries: entries, Bytes: size, Doing: entry.OneLine(b.Doing(), shownName), Tool: entry.OneLine(b.LastTool, shownName),
			CostMicros: cost.Micros, CostUnknown: cost.Unknown,
		})
	})
	if err != nil {
		p.giveBack(entries, size)
	}
	return err
}

// report ends the run with the report of its runner, and the entries that came with it.
func (r *Runs) report(ctx context.Context, by Poster, s sorted) error {
	if err := r.witness(ctx, by, s.report); err != nil {
		return err
	}
	r.keepPatch(ctx, by, s.report)
	e := finished(by.Agent, s.reportID, *s.report)
	if e.before = s.entries; s.asks { // its questions end with it
		e.before = slices.DeleteFunc(slices.Clone(s.entries), func(d entry.Draft) bool {
			return d.Type == (entry.PermissionAsked{}).Type() || d.Type == (entry.PermissionAnswered{}).Type()
		})
	}
	err := r.inThread(ctx, by.House, by.Thread, func(tx pgx.Tx, th thread.Thread) error {
		if th.Run.Epoch != by.Epoch || th.Status != thread.Running {
			return fault.New(fault.Forbidden, "this run is over", "stop the agent").WithReason(fault.RunEnded)
		}
		return r.endTx(ctx, tx, th, e)
	})
	if err == nil {
		r.posts.forget(by.Thread)
	}
	return err
}

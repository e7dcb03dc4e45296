package transcript

import (
	"context"
	"encoding/json"
	"math"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// searchSize limits the entries beyond a piece that are searched for the other half of a command.
	searchSize = 500
	// maxSearches limits the number of such searches for one piece, so that a page makes a bounded number of calls.
	maxSearches = 4
	// endOfLog stands for the unknown position of the last entry.
	endOfLog = math.MaxInt64
)

// search completes a piece of the log: it finds the command of a result, or the result of a command.
type search struct {
	*known
	log      Log
	messages *Messages
	// searches counts the searches for this piece.
	searches int
}

// findStart searches the entries before e for the command or the tool call that it completes.
func (s *search) findStart(ctx context.Context, e entry.Entry) error {
	for _, part := range entry.Parts(e) {
		sought := part.Kind == entry.CommandWork || part.Kind == entry.CallWork && entry.AnswerOf(part.ID) != ""
		if !sought || part.Stage != entry.Completes || s.ledger.Of(part.Kind, part.ID).Opened() != nil || s.searches == maxSearches {
			continue
		}
		s.searches++
		above, err := s.list(ctx, &arbev1.ListRequest{Before: e.Seq, Limit: searchSize})
		for _, e := range above {
			if slices.Contains(entry.Parts(e), entry.Part{Work: part.Work, Stage: entry.Opens}) {
				s.ledger.Learn(e)
			}
		}
		return err
	}
	return nil
}

// findOpen searches the entries before a position (0 is the end) for commands that have not ended there, unless it already
// knows one.
func (s *search) findOpen(ctx context.Context, before int64) error {
	if _, known := s.ledger.OldestOpen(entry.CommandWork); known || s.searches == maxSearches {
		return nil
	}
	s.searches++
	above, err := s.list(ctx, &arbev1.ListRequest{Before: before, Last: before == 0, Limit: searchSize})
	for _, e := range above {
		if !updatesOldest(e) {
			s.ledger.Learn(e)
		}
	}
	return err
}

// findEnds searches the entries after piece for those that complete what the piece opens.
func (s *search) findEnds(ctx context.Context, piece []entry.Entry, tail int64) error {
	if !slices.ContainsFunc(piece, s.isOpen) || piece[len(piece)-1].Seq >= tail {
		return nil
	}
	below, err := s.list(ctx, &arbev1.ListRequest{After: piece[len(piece)-1].Seq, Limit: searchSize})
	for _, e := range below {
		// Commands that begin below the piece are not shown in it. The end of a turn below it means that the turn's calls
		// have ended.
		if part, ok := entry.DoesTo(e, entry.CommandWork); !ok || part.Stage == entry.Completes {
			s.ledger.Learn(e)
		}
	}
	return err
}

// isOpen reports whether an entry opens a command, a call or a request for approval that is not known to have ended.
func (s *search) isOpen(e entry.Entry) bool {
	return slices.ContainsFunc(entry.Parts(e), func(p entry.Part) bool {
		ends := p.Kind == entry.CommandWork || p.Kind == entry.CallWork || p.Kind == entry.ApprovalWork
		return ends && p.Stage == entry.Opens && s.ledger.Of(p.Kind, p.ID).Completed() == nil
	})
}

func (s *search) list(ctx context.Context, req *arbev1.ListRequest) ([]entry.Entry, error) {
	// The entries have their states, so those that only change another entry need no search.
	req.ThreadId, req.Merged = s.thread, true
	res, err := s.log.List(ctx, req)
	if err != nil {
		return nil, err
	}
	s.applyStates(res.Entries)
	return Entries(res.Entries), nil
}

// applyStates records the edits, deletions and reactions of entries. It forgets the state of an entry that has none of them.
func (k *known) applyStates(wire []*arbev1.Entry) {
	for _, e := range wire {
		if e.State != nil {
			k.states[e.Id] = e.State
		} else {
			delete(k.states, e.Id)
		}
	}
}

// updatesOldest reports whether an entry belongs to the oldest waiting command but does not name it.
func updatesOldest(e entry.Entry) bool {
	part, _ := entry.DoesTo(e, entry.CommandWork)
	return part.Stage == entry.UpdatesOldest
}

// Entries returns entries of the API as the log has them.
func Entries(wire []*arbev1.Entry) []entry.Entry {
	all := make([]entry.Entry, len(wire))
	for i, e := range wire {
		all[i] = Entry(e)
	}
	return all
}

// Entry returns an entry of the API as the log has it.
func Entry(e *arbev1.Entry) entry.Entry {
	return entry.Entry{
		Seq: e.Seq, ID: e.Id, StreamID: e.StreamId, Author: e.AuthorAgentId,
		Type: e.Type, Payload: json.RawMessage(e.Payload), Time: e.Ts.AsTime(),
	}
}

package rpc

import (
	"context"
	"encoding/json"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// defaultEntries is how many entries a list has when the caller does not say.
	defaultEntries = 100
	// aliveEvery is how often a silent tail says that it lives: clients take twice this as a dead one.
	aliveEvery = 10 * time.Second
)

type entryService struct{ Services }

// may authorizes an action on a thread, and returns its log and who asks.
func (s *entryService) may(ctx context.Context, action auth.Action, threadID string) (stream.Ref, string, error) {
	scope, err := s.Auth.May(ctx, action, auth.Thread(threadID))
	return stream.Ref{House: scope.House, Name: thread.StreamName(threadID)}, scope.Agent, err
}

func (s *entryService) Append(ctx context.Context, req *arbev1.AppendRequest) (*arbev1.AppendResponse, error) {
	log, who, err := s.may(ctx, auth.Say, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	draft := entry.Draft{ID: req.GetId(), Author: who, Type: req.GetType(), Payload: json.RawMessage(req.GetPayload())}
	if err := entry.Check(draft, entry.Anyone); err != nil {
		return nil, err
	}
	written, err := s.Log.Append(ctx, log, draft)
	if err != nil {
		return nil, err
	}
	return &arbev1.AppendResponse{Entry: wireEntry(written[0])}, nil
}

func (s *entryService) List(ctx context.Context, req *arbev1.ListRequest) (*arbev1.ListResponse, error) {
	log, _, err := s.may(ctx, auth.Read, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultEntries
	}
	entries, tail, err := s.Log.Read(ctx, log, stream.Range{
		After: req.GetAfter(), Before: req.GetBefore(), Last: req.GetLast() || req.GetBefore() > 0, Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.ListResponse{Entries: each(entries, wireEntry), Tail: tail}, nil
}

func (s *entryService) Tail(ctx context.Context, req *arbev1.TailRequest, to *connect.ServerStream[arbev1.TailResponse]) error {
	log, _, err := s.may(ctx, auth.Read, req.GetThreadId())
	if err != nil {
		return err
	}
	// The tail runs beside this call, so that silence can be filled. It holds one event at a time: who
	// reads slowly is waited for by nobody else.
	ctx, done := s.Auth.While(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	defer done()
	events, ended := make(chan stream.Event), make(chan error, 1)
	go func() {
		for event, err := range s.Log.Tail(ctx, log, req.GetAfter()) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
		ended <- nil
	}()
	silence := time.NewTimer(aliveEvery)
	defer silence.Stop()
	for {
		var res *arbev1.TailResponse
		select {
		case <-ctx.Done():
			return auth.Refused(ctx)
		case err := <-ended:
			if err == nil { // it heard of the end of ctx first
				err = auth.Refused(ctx)
			}
			return err
		case event := <-events:
			res = wireEvent(event)
		case <-silence.C:
			res = &arbev1.TailResponse{Event: &arbev1.TailResponse_Alive{Alive: &arbev1.Alive{}}}
		}
		if err := to.Send(res); err != nil {
			return err
		}
		silence.Reset(aliveEvery)
	}
}

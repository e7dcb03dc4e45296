package rpc

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// defaultEntries is the default number of entries in a list.
	defaultEntries = 100
	// aliveEvery is the time between two heartbeats of a tail without events. Clients consider a tail dead after 40 seconds
	// of silence, so several heartbeats may be late.
	aliveEvery = 10 * time.Second
)

type entryService struct{ Services }

// confined reports whether the caller's credential is valid for one thread only.
func confined(ctx context.Context) bool {
	p, err := auth.PrincipalFrom(ctx)
	return err == nil && p.Thread != ""
}

// via returns how the caller speaks.
func via(ctx context.Context) entry.Via {
	p, _ := auth.PrincipalFrom(ctx)
	return p.Via()
}

// may authorizes an action on a thread, and returns the thread's log and the id of the caller.
func (s *entryService) may(ctx context.Context, action auth.Action, threadID string) (stream.Ref, string, error) {
	scope, err := s.Auth.Authorize(ctx, action, auth.Thread(threadID))
	return stream.Ref{House: scope.House, Name: thread.StreamName(threadID)}, scope.Agent, err
}

func (s *entryService) Say(ctx context.Context, req *arbev1.SayRequest) (*arbev1.SayResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Say, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	by := dispatch.Speaker{Scope: scope, Confined: confined(ctx), Via: via(ctx), MayRun: func(ctx context.Context) error {
		_, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
		return err
	}}
	think, err := entry.ParseEffort(req.GetThink())
	if err != nil {
		return nil, err
	}
	words := dispatch.Message{ID: req.GetId(), Text: req.GetText(), ReplyTo: req.GetReplyTo(), Think: think, Literal: req.GetLiteral(), Queue: req.GetQueue(), Attachments: req.GetAttachmentIds()}
	said, err := s.Dispatcher.Say(ctx, by, req.GetThreadId(), words)
	if err != nil {
		return nil, err
	}
	res := &arbev1.SayResponse{Entry: wireEntry(said)}
	if said.Type == (entry.Command{}).Type() {
		res.ResultId = entry.ResultID(said.ID)
	}
	return res, nil
}

func (s *entryService) Append(ctx context.Context, req *arbev1.AppendRequest) (*arbev1.AppendResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Say, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	draft, wire := entry.Draft{ID: req.GetId(), Author: scope.Agent, Type: req.GetType(), Payload: json.RawMessage(req.GetPayload())}, wireEntry
	switch raw := req.GetType() != "" || req.GetPayload() != ""; {
	case req.GetChat() != nil && raw:
		return nil, fault.New(fault.Invalid, "the request has the entry twice: as a chat, and as a type with a payload", "send one of them")
	case req.GetChat() != nil:
		chat := dispatch.Message{ID: req.GetId(), Text: req.GetChat().GetText(), ReplyTo: req.GetChat().GetReplyTo()}
		for _, a := range req.GetChat().GetAttachments() {
			chat.Attachments = append(chat.Attachments, a.GetArtifactId())
		}
		draft, wire = chat.Chat(scope.Agent), wireTypedEntry
	case !raw:
		return nil, fault.New(fault.Invalid, "there is no entry in the request", "send a type with a payload, or a chat")
	case req.GetType() == "":
		return nil, fault.New(fault.Invalid, "type: it is missing", "send the payload's, such as chat")
	case req.GetPayload() == "":
		return nil, fault.New(fault.Invalid, "payload: it is missing", "send one JSON object")
	}
	written, err := s.Dispatcher.Append(ctx, dispatch.Speaker{Scope: scope, Confined: confined(ctx)}, req.GetThreadId(), draft, true)
	if err != nil {
		return nil, err
	}
	return &arbev1.AppendResponse{Entry: wire(written)}, nil
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
	part := stream.Range{After: req.GetAfter(), Before: req.GetBefore(), Last: req.GetLast() || req.GetBefore() > 0, Limit: limit}
	var entries []entry.Entry
	var tail, searched int64
	kinds := stream.Kinds{Types: req.GetTypes()}
	if req.GetMerged() {
		kinds.Without = entry.Quiet
	}
	if len(kinds.Types) > 0 || req.GetMerged() {
		entries, searched, tail, err = s.Log.Pick(ctx, log, part, kinds)
	} else {
		entries, tail, err = s.Log.Read(ctx, log, part)
	}
	if err != nil {
		return nil, err
	}
	states, err := entrystate.Of(ctx, s.DB, log, entries)
	if err != nil {
		return nil, err
	}
	wire := wireEntry
	if req.GetTyped() {
		wire = wireTypedEntry
	}
	res := &arbev1.ListResponse{Entries: each(entries, wire), Tail: tail, Searched: searched}
	for _, e := range res.Entries {
		e.State = wireEntryState(states[e.Seq])
	}
	return res, nil
}

func (s *entryService) Edit(ctx context.Context, req *arbev1.EditRequest) (*arbev1.EditResponse, error) {
	e, err := s.revise(ctx, req.GetThreadId(), dispatch.Revision{ID: req.GetId(), Message: req.GetEntryId(), Text: req.GetText()})
	return &arbev1.EditResponse{Entry: e}, err
}

func (s *entryService) Delete(ctx context.Context, req *arbev1.DeleteRequest) (*arbev1.DeleteResponse, error) {
	e, err := s.revise(ctx, req.GetThreadId(), dispatch.Revision{ID: req.GetId(), Message: req.GetEntryId(), Delete: true})
	return &arbev1.DeleteResponse{Entry: e}, err
}

// revise revises the caller's last message, and returns it. A credential for one thread may not do this, because a
// program's messages with it are separate from the agent's other messages.
func (s *entryService) revise(ctx context.Context, thread string, r dispatch.Revision) (*arbev1.Entry, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(thread))
	if err != nil {
		return nil, err
	}
	message, became, err := s.Dispatcher.Revise(ctx, dispatch.Speaker{Scope: scope}, thread, r)
	if err != nil {
		return nil, err
	}
	e := wireEntry(message)
	e.State = wireEntryState(became)
	return e, nil
}

func (s *entryService) React(ctx context.Context, req *arbev1.ReactRequest) (*arbev1.ReactResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	to, now, err := s.Dispatcher.React(ctx, scope, req.GetThreadId(), req.GetEntryId(), req.GetEmoji(), req.GetRemove())
	if err != nil {
		return nil, err
	}
	e := wireEntry(to)
	e.State = wireEntryState(now)
	return &arbev1.ReactResponse{Entry: e}, nil
}

func (s *entryService) ListEdits(ctx context.Context, req *arbev1.ListEditsRequest) (*arbev1.ListEditsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	texts, err := entrystate.Wordings(ctx, s.DB, s.Log, stream.Ref{House: scope.House, Name: thread.StreamName(req.GetThreadId())}, req.GetThreadId(), req.GetEntryId())
	return &arbev1.ListEditsResponse{Wordings: each(texts, wireWording)}, err
}

func (s *entryService) Tail(ctx context.Context, req *arbev1.TailRequest, to *connect.ServerStream[arbev1.TailResponse]) error {
	log, _, err := s.may(ctx, auth.Read, req.GetThreadId())
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Read, auth.Thread(req.GetThreadId()))
	defer done()
	wire := wireEvent
	if req.GetTyped() {
		wire = wireTypedEvent
	}
	return relay(ctx, s.Log.Tail(ctx, log, req.GetAfter()), wire, func(e stream.Event) time.Time { return e.Known }, aliveEvery, alive(), to.Send)
}

func (s *entryService) WhoAnswers(ctx context.Context, req *arbev1.WhoAnswersRequest) (*arbev1.WhoAnswersResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	words := dispatch.Message{Text: req.GetText(), ReplyTo: req.GetReplyTo()}
	list, err := s.Dispatcher.Answerers(ctx, dispatch.Speaker{Scope: scope}, req.GetThreadId(), words)
	return &arbev1.WhoAnswersResponse{Answerers: each(list, wireAnswerer)}, err
}

func (s *entryService) WatchPresence(ctx context.Context, req *arbev1.WatchPresenceRequest, to *connect.ServerStream[arbev1.WatchPresenceResponse]) error {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return err
	}
	th, err := s.Threads.Get(ctx, scope, req.GetThreadId())
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	defer done()
	wire := func(agents []string) *arbev1.WatchPresenceResponse {
		return &arbev1.WatchPresenceResponse{Event: &arbev1.WatchPresenceResponse_Present{Present: &arbev1.Present{AgentIds: agents}}}
	}
	present := s.Live.Present(ctx, scope, th.ID)
	if len(th.People) > 0 && !slices.Contains(th.People, scope.Agent) {
		present = alone(ctx) // a reader of other people's direct message neither sees who else reads it, nor is seen
	}
	alive := &arbev1.WatchPresenceResponse{Event: &arbev1.WatchPresenceResponse_Alive{Alive: &arbev1.Alive{}}}
	return relay(ctx, present, wire, func([]string) time.Time { return time.Now() }, aliveEvery, alive, to.Send)
}

// alone yields an empty list, and ends with ctx.
func alone(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if yield(nil, nil) {
			<-ctx.Done()
		}
	}
}

func (s *entryService) ShowTyping(ctx context.Context, req *arbev1.ShowTypingRequest) (*arbev1.ShowTypingResponse, error) {
	log, who, err := s.may(ctx, auth.Say, req.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &arbev1.ShowTypingResponse{}, s.Log.Typing(ctx, log, who)
}

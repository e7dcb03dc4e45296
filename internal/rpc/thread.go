package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/retention"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type threadService struct{ Services }

func (s *threadService) CreateThread(ctx context.Context, req *arbev1.CreateThreadRequest) (*arbev1.CreateThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	draft := thread.Draft{
		ID: req.GetId(), Name: req.GetName(), ParentThread: req.GetParentThreadId(), ParentAgent: req.GetParentAgentId(),
		Agent: req.GetAgentId(), Environment: req.GetEnvironmentId(), Tags: req.GetTags(), Pinned: req.GetPinned(),
	}
	var made thread.Thread
	if req.GetReuse() {
		made, err = s.Threads.Direct(ctx, scope, draft)
	} else {
		made, err = s.Threads.Create(ctx, scope, draft)
	}
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateThreadResponse{Thread: wireThread(made)}, nil
}

func (s *threadService) GetThread(ctx context.Context, req *arbev1.GetThreadRequest) (*arbev1.GetThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Thread(req.GetId()))
	if err != nil {
		return nil, s.whyGone(ctx, retention.Thread, req.GetId(), err)
	}
	got, err := s.Threads.Get(ctx, scope, req.GetId())
	if err != nil {
		return nil, err
	}
	got = s.Dispatcher.Runs.Fresh(ctx, scope, got)
	res := &arbev1.GetThreadResponse{Thread: wireThread(got)}
	if req.GetDecisions() {
		decisions, err := s.Dispatcher.Decisions(ctx, scope, req.GetId())
		if err != nil {
			return nil, err
		}
		res.Decided, res.Waiting = decisions.Upto, each(decisions.Delayed, wireWaitingBot)
	}
	if req.GetUsage() {
		used, err := s.Dispatcher.ThreadUsed(ctx, scope, req.GetId())
		if err != nil {
			return nil, err
		}
		res.Used = &arbev1.ThreadUsage{Usd: float64(used.CostMicros) / 1e6, UsdUnknown: used.CostUnknown, Calls: used.Calls,
			Model: used.Model, ContextTokens: used.Tokens, ContextWindow: used.Window}
	}
	return res, nil
}

func (s *threadService) ListThreads(ctx context.Context, req *arbev1.ListThreadsRequest) (*arbev1.ListThreadsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	after, err := threadList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Threads.List(ctx, scope, thread.Filter{
		ParentThread: req.GetParentThreadId(), ForkedFrom: req.GetForkedFromThreadId(), Tag: req.GetTag(), Status: thread.Status(arbev1.Word(req.GetStatus())),
		Match: req.GetMatch(), Shared: req.GetShared(), After: thread.Cursor{PinnedAt: after.Pinned, ActiveAt: after.Time, ID: after.ID}, Limit: size + 1,
	})
	if err != nil {
		return nil, err
	}
	if req.GetMatch() != "" { // a search has only one page
		return &arbev1.ListThreadsResponse{Threads: each(rows[:min(len(rows), size)], wireThread)}, nil
	}
	rows, next := cut(threadList, rows, size, func(t thread.Thread) bookmark {
		return bookmark{Pinned: t.PinnedAt, Time: t.ActiveAt, ID: t.ID}
	})
	return &arbev1.ListThreadsResponse{Threads: each(rows, wireThread), NextPageToken: next}, nil
}

func (s *threadService) UpdateThread(ctx context.Context, req *arbev1.UpdateThreadRequest) (*arbev1.UpdateThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetId()))
	if err != nil {
		return nil, err
	}
	change := thread.Change{Name: req.Name, Environment: req.EnvironmentId, Pinned: req.Pinned, Answering: req.AnsweringAgentId, ETag: req.GetEtag()}
	if req.GetTags() != nil {
		change.Tags = &req.Tags.Values
	}
	if req.Status != nil {
		change.Status = new(thread.Status(arbev1.Word(req.GetStatus())))
	}
	change.Think = req.Think
	var unverified string
	if change.Model = req.Model; change.Model != nil {
		if unverified, err = s.checkModel(ctx, scope, change.Model, req.GetSkipModelCheck()); err != nil {
			return nil, err
		}
	}
	changed, err := s.Threads.Update(ctx, scope, req.GetId(), change)
	if err != nil {
		return nil, err
	}
	if req.Status != nil {
		if err := s.Dispatcher.StatusChanged(ctx, scope, changed); err != nil {
			s.Logger.WarnContext(ctx, "the bots that wait for people in a closed thread end a little later", "thread", changed.ID, "error", fault.From(err).Detail())
		}
	}
	return &arbev1.UpdateThreadResponse{Thread: wireThread(changed), UnverifiedModel: unverified}, nil
}

func (s *threadService) DeleteThread(ctx context.Context, req *arbev1.DeleteThreadRequest) (*arbev1.DeleteThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound { // already deleted, or in a house that the caller must not learn of
		return &arbev1.DeleteThreadResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	return &arbev1.DeleteThreadResponse{}, s.Dispatcher.DeleteThread(ctx, scope, req.GetId())
}

func (s *threadService) ForkThread(ctx context.Context, req *arbev1.ForkThreadRequest) (*arbev1.ForkThreadResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	made, err := s.Threads.Fork(ctx, scope, req.GetThreadId(), thread.Fork{ID: req.GetId(), At: req.GetAt(), Name: req.GetName()})
	if err != nil {
		return nil, err
	}
	return &arbev1.ForkThreadResponse{Thread: wireThread(made)}, nil
}

func (s *threadService) RunCommand(ctx context.Context, req *arbev1.RunCommandRequest) (*arbev1.RunCommandResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	if err := s.Dispatcher.MayGrow(ctx, scope); err != nil {
		return nil, err
	}
	said, err := s.Dispatcher.Commands.Run(ctx, scope, req.GetThreadId(), req.GetId(), entry.Command{
		Command: req.GetCommand(), Argv: req.GetArgv().GetArgs(), EnvironmentID: req.GetEnvironmentId(),
		TimeoutMS: milliseconds(req.GetTimeout()), Separate: req.GetSeparate(), Unlogged: req.GetUnlogged(), Input: req.GetInput(),
		Terminal: terminalFrom(req.GetTerminal()), Directory: req.GetDirectory(), Env: req.GetEnv(), Via: via(ctx).Stored(),
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.RunCommandResponse{Entry: wireEntry(said), ResultId: entry.ResultID(said.ID)}, nil
}

func (s *threadService) ReadOutput(ctx context.Context, req *arbev1.ReadOutputRequest) (*arbev1.ReadOutputResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	intent := command.ReadOn
	switch {
	case req.GetLeave():
		intent = command.Leave
	case req.GetStay():
		intent = command.Stay
	case req.GetJoin():
		intent = command.Join
	}
	read, err := s.Dispatcher.Commands.Read(ctx, scope, req.GetThreadId(), req.GetCommandId(), req.GetPosition(), command.Reader{Intent: intent, ID: req.GetReader()})
	if err != nil {
		return nil, err
	}
	return &arbev1.ReadOutputResponse{Pieces: each(read.Pieces, wirePiece), Position: read.Position, Ended: read.Ended}, nil
}

func (s *threadService) WriteInput(ctx context.Context, req *arbev1.WriteInputRequest) (*arbev1.WriteInputResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	written, err := s.Dispatcher.Commands.Write(ctx, scope, req.GetThreadId(), req.GetCommandId(), command.Keys{
		Position: req.GetPosition(), Data: req.GetData(), End: req.GetEnd(), Join: req.GetJoin(), Again: req.GetAgain(), Size: sizeFrom(req.GetSize()),
	})
	if err != nil {
		return nil, err
	}
	return &arbev1.WriteInputResponse{Position: written.Position, Closed: written.Closed}, nil
}

func (s *threadService) CancelCommand(ctx context.Context, req *arbev1.CancelCommandRequest) (*arbev1.CancelCommandResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	if req.GetAll() == (req.GetCommandId() != "") {
		return nil, fault.New(fault.Invalid, "command_id: it is empty, or all is set too", "send either command_id or all")
	}
	with := map[arbev1.Signal]command.Signal{
		arbev1.Signal_SIGNAL_UNSPECIFIED: command.Interrupt, arbev1.Signal_SIGNAL_INT: command.Interrupt,
		arbev1.Signal_SIGNAL_TERM: command.Terminate, arbev1.Signal_SIGNAL_KILL: command.Kill,
	}[req.GetSignal()]
	if req.GetAll() {
		cancelled, err := s.Dispatcher.Commands.CancelAll(ctx, scope, req.GetThreadId(), with)
		return &arbev1.CancelCommandResponse{CommandIds: cancelled}, err
	}
	return &arbev1.CancelCommandResponse{}, s.Dispatcher.Commands.Cancel(ctx, scope, req.GetThreadId(), req.GetCommandId(), with)
}

func (s *threadService) StopTurn(ctx context.Context, req *arbev1.StopTurnRequest) (*arbev1.StopTurnResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	if req.GetAll() == (req.GetTurnId() != "") {
		return nil, fault.New(fault.Invalid, "turn_id: send either turn_id or all", "give the id of a turn, or all")
	}
	found, err := s.Dispatcher.StopTurns(ctx, scope, req.GetThreadId(), req.GetTurnId())
	return &arbev1.StopTurnResponse{TurnIds: each(found, func(t turn.Turn) string { return t.ID })}, err
}

func (s *threadService) RetryTurn(ctx context.Context, req *arbev1.RetryTurnRequest) (*arbev1.RetryTurnResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Thread(req.GetThreadId()))
	if err != nil {
		return nil, err
	}
	again, err := s.Dispatcher.RetryTurn(ctx, scope, req.GetThreadId(), req.GetTurnId())
	return &arbev1.RetryTurnResponse{TurnId: again}, err
}

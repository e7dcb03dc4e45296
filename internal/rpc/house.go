package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/retention"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// watchAliveEvery is the time between two heartbeats of a watch without events. Clients consider a watch dead after twice
// that time.
const watchAliveEvery = 20 * time.Second

type houseService struct{ Services }

func (s *houseService) CreateHouse(ctx context.Context, req *arbev1.CreateHouseRequest) (*arbev1.CreateHouseResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Write, auth.Account)
	if err != nil {
		return nil, err
	}
	made, err := s.Houses.Create(ctx, scope.Agent, req.GetName())
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateHouseResponse{House: wireHouse(made)}, nil
}

func (s *houseService) GetHouse(ctx context.Context, req *arbev1.GetHouseRequest) (*arbev1.GetHouseResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetId()))
	if err != nil {
		return nil, err
	}
	got, err := s.Houses.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	res := &arbev1.GetHouseResponse{House: wireHouse(got)}
	if req.GetUsage() {
		used, err := s.Dispatcher.UsedToday(ctx, scope)
		if err != nil {
			return nil, err
		}
		budget, limits := s.Dispatcher.Budget(), got.Limits.Within(s.Houses.Maxima)
		dollars := func(micros int64) float64 { return float64(micros) / 1e6 }
		res.UsedToday = &arbev1.HouseUsage{
			Usd: dollars(used.CostMicros), UsdUnknown: used.CostUnknown, Calls: used.Calls, UsdLimit: limits.USDDay,
			SharedUsd: dollars(used.ChargedMicros), PersonUsd: dollars(used.PersonMicros), PersonUsdLimit: dollars(budget.PersonMicros),
			InstallationUsdLimit: dollars(budget.DayMicros), InstallationSpent: budget.DayMicros > 0 && used.InstallationMicros >= budget.DayMicros,
			MemberUsd: dollars(used.MemberMicros), MemberUsdLimit: limits.MemberUSDDay,
		}
		if res.Logs, err = s.logs(ctx, scope); err != nil {
			return nil, err
		}
	}
	if p := req.GetPreview(); p != nil {
		if scope, err = s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetId())); err != nil {
			return nil, err
		}
		old, err := s.Dispatcher.Retention.Preview(ctx, scope, retentionFrom(p))
		if err != nil {
			return nil, err
		}
		res.Preview = &arbev1.RetentionPreview{Threads: old.Threads, Artifacts: old.Artifacts, ArtifactBytes: old.ArtifactBytes}
	}
	return res, nil
}

func (s *houseService) logs(ctx context.Context, scope db.Scope) (*arbev1.HouseLogs, error) {
	used, most, err := s.Dispatcher.Logs(ctx, scope)
	if err != nil {
		return nil, err
	}
	mine, err := s.Dispatcher.MemberLogs(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.HouseLogs{Entries: used.Entries, Bytes: used.Bytes, BytesLimit: most, MemberBytes: mine.Bytes, MemberBytesLimit: mine.Most}, nil
}

func retentionFrom(r *arbev1.HouseRetention) retention.Keep {
	return retention.Keep{
		ThreadsDays: int(r.GetThreadsDays()), ArtifactsDays: int(r.GetArtifactsDays()),
		ThreadsBytes: int64(r.GetThreadsMb()) << 20, ArtifactsBytes: int64(r.GetArtifactsMb()) << 20,
	}
}

func (s *houseService) ListHouses(ctx context.Context, req *arbev1.ListHousesRequest) (*arbev1.ListHousesResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.Account)
	if err != nil {
		return nil, err
	}
	after, err := houseList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Houses.List(ctx, scope.Agent, scope.House, after.cursor(), size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(houseList, rows, size, func(h house.House) bookmark { return bookmark{Time: h.CreatedAt, ID: h.ID} })
	return &arbev1.ListHousesResponse{Houses: each(rows, wireHouse), NextPageToken: next}, nil
}

func (s *houseService) UpdateHouse(ctx context.Context, req *arbev1.UpdateHouseRequest) (*arbev1.UpdateHouseResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetId()))
	if err != nil {
		return nil, err
	}
	change := house.Change{Name: req.Name, Environment: req.DefaultEnvironmentId, Ask: names(req.GetAsk()), ETag: req.GetEtag()}
	if l := req.GetLimits(); l != nil {
		change.Limits = &house.Limits{USDDay: l.GetHouseUsdDay(), MemberUSDDay: l.GetMemberUsdDay()}
	}
	if r := req.GetRetention(); r != nil {
		change.KeepThreads, change.KeepArtifacts, change.KeepThreadsMB, change.KeepArtifactsMB = &r.ThreadsDays, &r.ArtifactsDays, &r.ThreadsMb, &r.ArtifactsMb
	}
	changed, err := s.Houses.Update(ctx, scope, change)
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdateHouseResponse{House: wireHouse(changed)}, nil
}

func (s *houseService) DeleteHouse(ctx context.Context, req *arbev1.DeleteHouseRequest) (*arbev1.DeleteHouseResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Govern, auth.House(req.GetId()))
	if fault.CodeOf(err) == fault.NotFound { // already deleted, or a house that the caller must not learn of
		return &arbev1.DeleteHouseResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	err = s.Houses.Delete(ctx, scope, req.GetName(), func(tx pgx.Tx) error { return s.Dispatcher.DeleteHouseTx(ctx, tx, scope) })
	if err != nil {
		return nil, err
	}
	s.Logger.InfoContext(ctx, "a house is deleted", "house", scope.House, "agent", scope.Agent)
	return &arbev1.DeleteHouseResponse{}, nil
}

// whyGone is [retention.Retention.Explain] for the object that the caller requested. A thread token gets an explanation
// only about its own thread.
func (s *Services) whyGone(ctx context.Context, kind, id string, err error) error {
	who, failed := auth.PrincipalFrom(ctx)
	if failed != nil || who.Thread != "" {
		return err
	}
	return s.Dispatcher.Retention.Explain(ctx, db.Scope{House: who.House, Agent: who.Agent}, kind, id, err)
}

func (s *houseService) ListMembers(ctx context.Context, req *arbev1.ListMembersRequest) (*arbev1.ListMembersResponse, error) {
	rows, next, err := s.members(ctx, req.GetHouseId(), req.GetPageToken(), req.GetPageSize())
	if err != nil {
		return nil, err
	}
	return &arbev1.ListMembersResponse{Members: each(rows, wireMember), NextPageToken: next}, nil
}

// members returns one page of the members of a house, and the token of the next page.
func (s *Services) members(ctx context.Context, houseID, token string, asked int32) ([]house.Member, string, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(houseID))
	if err != nil {
		return nil, "", err
	}
	after, err := memberList.open(token)
	if err != nil {
		return nil, "", err
	}
	size := pageSize(asked)
	rows, err := s.Houses.Members(ctx, scope, after.cursor(), size+1)
	if err != nil {
		return nil, "", err
	}
	rows, next := cut(memberList, rows, size, func(m house.Member) bookmark { return bookmark{Time: m.JoinedAt, ID: m.Agent.ID} })
	return rows, next, nil
}

func (s *houseService) WatchHouse(ctx context.Context, req *arbev1.WatchHouseRequest, to *connect.ServerStream[arbev1.WatchHouseResponse]) error {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return err
	}
	ctx, done := s.Auth.While(ctx, auth.Read, auth.House(req.GetHouseId()))
	defer done()
	want := live.Want{Threads: int(req.GetThreads()), IDs: req.GetThreadIds(), Members: req.GetMembers(), Bots: req.GetBots()}
	if req.GetInbox() {
		want.Reader = scope.Agent
	}
	return relay(ctx, s.Live.Watch(ctx, scope, want), func(c live.Change) *arbev1.WatchHouseResponse { return wireChange(s.Boxes, c) }, func(live.Change) time.Time { return time.Now() }, watchAliveEvery,
		&arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Alive{Alive: &arbev1.Alive{}}}, to.Send)
}

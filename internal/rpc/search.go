package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/thread"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// foundByDefault is the default number of entries that a search returns.
const foundByDefault = 20

func (s *entryService) Search(ctx context.Context, req *arbev1.SearchRequest) (*arbev1.SearchResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	find, err := thread.ParseFind(req.GetQuery())
	if err != nil {
		return nil, err
	}
	most := int(req.GetPageSize())
	if most == 0 {
		most = foundByDefault
	}
	hits, named, err := s.Threads.Find(ctx, scope, find, most)
	if err != nil {
		return nil, err
	}
	pending, err := s.Threads.Unsearchable(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.SearchResponse{Hits: each(hits, wireHit), Threads: each(named, func(n thread.Named) *arbev1.NamedThread {
		return &arbev1.NamedThread{ThreadId: n.Thread, Name: n.Name}
	}), Pending: pending}, nil
}

func wireHit(f thread.Found) *arbev1.SearchHit {
	return &arbev1.SearchHit{ThreadId: f.Thread, ThreadName: f.ThreadName, Seq: f.Entry.Seq, EntryId: f.Entry.ID, Type: f.Kind,
		AuthorAgentId: f.Entry.Author, AuthorName: f.AuthorName, Snippet: f.Snippet, WrittenAt: timestamp(f.Entry.Time)}
}

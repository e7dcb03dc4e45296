package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

type runs struct {
	arbev1connect.UnimplementedRunServiceHandler
	f *fake
}

func (s runs) CancelRun(_ context.Context, req *arbev1.CancelRunRequest) (*arbev1.CancelRunResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, "stop "+req.ThreadId)
	return &arbev1.CancelRunResponse{Stopped: true}, nil
}

func (s runs) ContinueRun(_ context.Context, req *arbev1.ContinueRunRequest) (*arbev1.ContinueRunResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, fmt.Sprint("continue ", req.ThreadId, " ", req.Fresh))
	return &arbev1.ContinueRunResponse{Epoch: 2}, nil
}

// Whoever reads the thread of a coding agent can stop it while it works, and let it continue when it rests.
func TestARunIsStoppedAndContinuedOnItsPage(t *testing.T) {
	t.Parallel()
	const stop, again = "/threads/codingrun1/run/stop", "/threads/codingrun1/run/continue"
	f := newFake().withBot()
	th := f.thread("codingrun1", "Fix the failing test")
	th.AgentId = bee
	c := ada(t, f)
	for status, shown := range map[string]struct{ has, lacks []string }{
		"idle":      {nil, []string{stop, again}},
		"running":   {[]string{stop}, []string{again}},
		"completed": {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
		"failed":    {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
		"cancelled": {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
	} {
		f.mu.Lock()
		th.Status = status
		f.mu.Unlock()
		_, text := c.get("/threads/codingrun1")
		contains(t, text, shown.has...)
		lacks(t, text, shown.lacks...)
	}
	for _, post := range []struct {
		path string
		form url.Values
	}{{stop, nil}, {again, url.Values{"fresh": {"false"}}}, {again, url.Values{"fresh": {"true"}}}} {
		res, _ := c.post(post.path, post.form)
		want(t, res, http.StatusSeeOther, "/threads/codingrun1")
	}
	if got := fmt.Sprint(f.runs); got != "[stop codingrun1 continue codingrun1 false continue codingrun1 true]" {
		t.Errorf("asked: %s", got)
	}
}

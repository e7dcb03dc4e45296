package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// linksOnly is a server that accepts links, and then fails every other call.
type linksOnly struct {
	arbev1connect.UnimplementedHouseServiceHandler
	arbev1connect.UnimplementedAgentServiceHandler
}

func (linksOnly) GetInvite(context.Context, *arbev1.GetInviteRequest) (*arbev1.GetInviteResponse, error) {
	return &arbev1.GetInviteResponse{HouseName: "Home", InvitedBy: "Ada", Role: "member"}, nil
}

func (linksOnly) AcceptInvite(_ context.Context, req *arbev1.AcceptInviteRequest) (*arbev1.AcceptInviteResponse, error) {
	return &arbev1.AcceptInviteResponse{
		House: &arbev1.House{Id: "house", Name: "Home", Role: "member"}, Agent: &arbev1.Agent{Id: "agent", Kind: "human", Name: req.GetName()},
		Session: "the session", SessionExpiresAt: timestamppb.New(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)),
	}, nil
}

func (linksOnly) RedeemLoginLink(context.Context, *arbev1.RedeemLoginLinkRequest) (*arbev1.RedeemLoginLinkResponse, error) {
	return &arbev1.RedeemLoginLinkResponse{
		Agent: &arbev1.Agent{Id: "agent", Kind: "human", Name: "Grace"}, Session: "the session",
		ExpiresAt: timestamppb.New(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)),
	}, nil
}

func (linksOnly) WhoAmI(context.Context, *arbev1.WhoAmIRequest) (*arbev1.WhoAmIResponse, error) {
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("the server restarts"))
}

// A link works once, so a server that fails after its use must not cost the person their session.
func TestTheSessionOfALinkIsKeptWhateverFailsNext(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"invite": {"/join?token=secret", "--name", "Grace"},
		"login":  {"/login?token=secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.Handle(arbev1connect.NewHouseServiceHandler(linksOnly{}))
			mux.Handle(arbev1connect.NewAgentServiceHandler(linksOnly{}))
			server := httptest.NewServer(mux)
			defer server.Close()
			env := map[string]string{"ARBE_CONFIG_DIR": t.TempDir(), "ARBE_DATA_DIR": t.TempDir()}
			var said strings.Builder
			a := &app{in: strings.NewReader(""), out: &strings.Builder{}, err: &said, getenv: func(name string) string { return env[name] }}
			code := a.run(t.Context(), append([]string{"login", "--profile", "grace", server.URL + args[0]}, args[1:]...))
			saved, err := a.profiles()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := saved.All["grace"], (profile{Host: server.URL, Token: "the session"}); got != want || saved.Current != "grace" {
				t.Errorf("the profile is %+v and %q is in use, want %+v in use; it exited with %d: %s", got, saved.Current, want, code, said.String())
			}
			if !strings.Contains(said.String(), "this session ends on 2030-01-31; to stay logged in, create a key before that") {
				t.Errorf("it says %q, and not when the session ends", said.String())
			}
		})
	}
}

// codesOnly is a server that lets programs log in with codes. It answers polls with answers, one after another.
type codesOnly struct {
	arbev1connect.UnimplementedAgentServiceHandler
	answers []func() (*arbev1.PollDeviceLoginResponse, error)
}

func (*codesOnly) BeginDeviceLogin(context.Context, *arbev1.BeginDeviceLoginRequest) (*arbev1.BeginDeviceLoginResponse, error) {
	return &arbev1.BeginDeviceLoginResponse{DeviceCode: "secret", UserCode: "BCDF-GHJK", Path: "/login/device?code=BCDF-GHJK", Interval: durationpb.New(time.Millisecond)}, nil
}

func (s *codesOnly) PollDeviceLogin(_ context.Context, req *arbev1.PollDeviceLoginRequest) (*arbev1.PollDeviceLoginResponse, error) {
	if req.GetDeviceCode() != "secret" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("this login is not known"))
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next()
}

func TestALoginWithACodeWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	type answer = func() (*arbev1.PollDeviceLoginResponse, error)
	refuses := func(code connect.Code, message string) answer {
		return func() (*arbev1.PollDeviceLoginResponse, error) {
			return nil, connect.NewError(code, errors.New(message))
		}
	}
	nothing := func() (*arbev1.PollDeviceLoginResponse, error) { return &arbev1.PollDeviceLoginResponse{}, nil }
	approved := func() (*arbev1.PollDeviceLoginResponse, error) {
		return &arbev1.PollDeviceLoginResponse{Session: "the session", Agent: &arbev1.Agent{Id: "agent", Kind: "human", Name: "Grace"}}, nil
	}
	for name, c := range map[string]struct {
		answers []answer
		code    int
		says    string
		session string
	}{
		"while nobody answers and the server starts again": {[]answer{nothing, refuses(connect.CodeUnavailable, "starting"), nothing, approved}, 0, "BCDF-GHJK", "the session"},
		"until it expires":   {[]answer{nothing, refuses(connect.CodeUnauthenticated, "nobody approved this login within ten minutes")}, 4, "log in again with: arbe login http://", ""},
		"until it is denied": {[]answer{refuses(connect.CodePermissionDenied, "this login was denied")}, 5, "this login was denied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"ARBE_CONFIG_DIR": t.TempDir(), "ARBE_DATA_DIR": t.TempDir()}
			var said strings.Builder
			a := &app{in: strings.NewReader(""), out: &strings.Builder{}, err: &said, getenv: func(name string) string { return env[name] }}
			// Meanwhile another login ends.
			first := c.answers[0]
			answers := append([]answer{func() (*arbev1.PollDeviceLoginResponse, error) {
				others, err := a.profiles()
				if err == nil {
					others.All["ada"] = profile{Host: "https://other.example", Token: "another session"}
					err = others.save()
				}
				if err != nil {
					t.Error(err)
				}
				return first()
			}}, c.answers[1:]...)
			mux := http.NewServeMux()
			mux.Handle(arbev1connect.NewAgentServiceHandler(&codesOnly{answers: answers}))
			server := httptest.NewServer(mux)
			defer server.Close()
			if code := a.run(t.Context(), []string{"login", server.URL, "--profile", "grace"}); code != c.code || !strings.Contains(said.String(), c.says) {
				t.Errorf("it exits with %d, want %d, and says %q, want %q", code, c.code, said.String(), c.says)
			}
			saved, err := a.profiles()
			if err != nil {
				t.Fatal(err)
			}
			if got := saved.All["grace"].Token; got != c.session {
				t.Errorf("the profile has %q, want %q", got, c.session)
			}
			if got := saved.All["ada"].Token; got != "another session" {
				t.Errorf("the profile of the other login has %q", got)
			}
		})
	}
}

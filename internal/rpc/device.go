package rpc

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// devicePath returns the path and query of the page that approves the login with a code, relative to the server's address.
func devicePath(code string) string { return "/login/device?code=" + url.QueryEscape(code) }

func (s *agentService) BeginDeviceLogin(ctx context.Context, req *arbev1.BeginDeviceLoginRequest) (*arbev1.BeginDeviceLoginResponse, error) {
	begun, err := s.Auth.BeginDevice(ctx, req.GetClient(), callerAddress(ctx))
	if err != nil {
		return nil, err
	}
	return &arbev1.BeginDeviceLoginResponse{
		DeviceCode: begun.Secret, UserCode: begun.Code, Path: devicePath(begun.Code),
		Interval: durationpb.New(auth.DeviceInterval), ExpiresAt: timestamp(begun.ExpiresAt),
	}, nil
}

func (s *agentService) PollDeviceLogin(ctx context.Context, req *arbev1.PollDeviceLoginRequest) (*arbev1.PollDeviceLoginResponse, error) {
	session, expires, who, err := s.Auth.PollDevice(ctx, req.GetDeviceCode())
	if err != nil || session == "" {
		return &arbev1.PollDeviceLoginResponse{}, err
	}
	self, err := s.Houses.Agent(ctx, db.Scope{Agent: who.Agent}, who.Agent)
	if err != nil {
		return nil, err
	}
	return &arbev1.PollDeviceLoginResponse{Session: session, ExpiresAt: timestamp(expires), Agent: wireAgent(self)}, nil
}

func (s *agentService) GetDeviceLogin(ctx context.Context, req *arbev1.GetDeviceLoginRequest) (*arbev1.GetDeviceLoginResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.CreateCredential, auth.Account)
	if err != nil {
		return nil, err
	}
	login, err := s.Auth.Device(ctx, scope, req.GetUserCode())
	if err != nil {
		return nil, err
	}
	return &arbev1.GetDeviceLoginResponse{Login: wireDeviceLogin(login)}, nil
}

func (s *agentService) AnswerDeviceLogin(ctx context.Context, req *arbev1.AnswerDeviceLoginRequest) (*arbev1.AnswerDeviceLoginResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.CreateCredential, auth.Account)
	if err != nil {
		return nil, err
	}
	login, err := s.Auth.AnswerDevice(ctx, scope, req.GetUserCode(), req.GetVerdict() == arbev1.Verdict_VERDICT_APPROVE)
	if err != nil {
		return nil, err
	}
	return &arbev1.AnswerDeviceLoginResponse{Login: wireDeviceLogin(login)}, nil
}

// callerAddress returns the IP address of the caller, or "" if it is not known. Behind a proxy, the address of the
// connection is the proxy's. It trusts only the last address that a proxy of this machine adds, because callers can send
// these headers, too.
func callerAddress(ctx context.Context) string {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return ""
	}
	peer, err := netip.ParseAddrPort(call.Peer().Addr)
	if err != nil {
		return ""
	}
	header, proxied := call.RequestHeader(), false
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Via"} {
		proxied = proxied || header.Get(name) != ""
	}
	from := peer.Addr().Unmap().WithZone("")
	switch {
	case !proxied:
		return from.String()
	case !from.IsLoopback():
		return ""
	}
	all := strings.Split(strings.Join(header.Values("X-Forwarded-For"), ","), ",")
	last, err := netip.ParseAddr(strings.TrimSpace(all[len(all)-1]))
	if err != nil {
		return ""
	}
	return last.Unmap().WithZone("").String()
}

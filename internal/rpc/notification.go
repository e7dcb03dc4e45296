package rpc

import (
	"context"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/push"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type notificationService struct{ Services }

func (s *notificationService) GetNotifications(ctx context.Context, _ *arbev1.GetNotificationsRequest) (*arbev1.GetNotificationsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.Account)
	if err != nil {
		return nil, err
	}
	n, err := s.Pusher.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	return &arbev1.GetNotificationsResponse{Settings: wireNotificationSettings(n.Settings), Devices: each(n.Devices, wirePushDevice),
		ServerKey: s.Pusher.PublicKey(), Email: n.Email, SendsMail: s.Pusher.Mail.Enabled()}, nil
}

func (s *notificationService) UpdateNotifications(ctx context.Context, req *arbev1.UpdateNotificationsRequest) (*arbev1.UpdateNotificationsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.Account)
	if err != nil {
		return nil, err
	}
	settings := notificationSettings(req.GetSettings())
	if err := s.Pusher.Update(ctx, scope, settings); err != nil {
		return nil, err
	}
	return &arbev1.UpdateNotificationsResponse{Settings: wireNotificationSettings(settings)}, nil
}

func (s *notificationService) AddPushDevice(ctx context.Context, req *arbev1.AddPushDeviceRequest) (*arbev1.AddPushDeviceResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.Account)
	if err != nil {
		return nil, err
	}
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return nil, err
	}
	id, err := s.Pusher.Add(ctx, scope, push.Address{Endpoint: req.GetEndpoint(), P256dh: req.GetP256Dh(), Auth: req.GetAuth()}, auth.ClientName(req.GetUserAgent()), who.Session())
	if err != nil {
		return nil, err
	}
	return &arbev1.AddPushDeviceResponse{Id: id}, nil
}

func (s *notificationService) RemovePushDevice(ctx context.Context, req *arbev1.RemovePushDeviceRequest) (*arbev1.RemovePushDeviceResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.Account)
	if err != nil {
		return nil, err
	}
	return &arbev1.RemovePushDeviceResponse{}, s.Pusher.Remove(ctx, scope, req.GetId())
}

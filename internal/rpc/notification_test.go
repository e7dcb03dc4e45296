package rpc_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// pushDevice is what a browser says of itself.
func pushDevice(endpoint string) *arbev1.AddPushDeviceRequest {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return &arbev1.AddPushDeviceRequest{Endpoint: endpoint, P256Dh: base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes()),
		Auth: base64.RawURLEncoding.EncodeToString(make([]byte, 16)), UserAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"}
}

func TestAPersonChoosesHowTheyAreTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	get := func(p person) *arbev1.GetNotificationsResponse {
		t.Helper()
		got, err := p.Notifications.GetNotifications(ctx, &arbev1.GetNotificationsRequest{})
		must(t, err)
		return got
	}
	first := get(b.ada)
	if first.ServerKey != b.pusher.PublicKey() || !first.SendsMail || first.Email != "" || first.Settings.Digest != arbev1.MailDigest_MAIL_DIGEST_OFF || first.Settings.QuietHours != nil {
		t.Errorf("at first, there is %v", first)
	}
	settings := &arbev1.NotificationSettings{Digest: arbev1.MailDigest_MAIL_DIGEST_DAILY, QuietHours: &arbev1.QuietHours{From: 1320, To: 420, TimeZone: "Europe/Berlin"}}
	update := func() error {
		return errOf(b.ada.Notifications.UpdateNotifications(ctx, &arbev1.UpdateNotificationsRequest{Settings: settings}))
	}
	refused(t, update(), connect.CodeFailedPrecondition, "verified")
	b.exec(t, "insert into login_identities (issuer, subject, agent_id, email) values ('https://login.example.com', 'ada', $1, 'ada@example.com')", b.ada.id)
	must(t, update())
	if got := get(b.ada); !proto.Equal(got.Settings, settings) || got.Email != "ada@example.com" {
		t.Errorf("after the change, there is %v", got)
	}
	settings.QuietHours.TimeZone = "Nowhere"
	refused(t, update(), connect.CodeInvalidArgument, "time zone")
	settings.QuietHours.From = 1440
	refused(t, update(), connect.CodeInvalidArgument, "from")
	refused(t, errOf(b.ada.Notifications.UpdateNotifications(ctx, &arbev1.UpdateNotificationsRequest{Settings: &arbev1.NotificationSettings{}})), connect.CodeInvalidArgument, "digest")
}

func TestADeviceIsOfOnePerson(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	session := b.client(b.ada.login(t))
	added, err := session.Notifications.AddPushDevice(ctx, pushDevice("https://push.example.com/1"))
	must(t, err)
	list := func() []*arbev1.PushDevice {
		t.Helper()
		got, err := b.ada.Notifications.GetNotifications(ctx, &arbev1.GetNotificationsRequest{})
		must(t, err)
		return got.Devices
	}
	if got := list(); len(got) != 1 || got[0].Id != added.Id || got[0].Client != "Firefox on Linux" || got[0].CreatedAt == nil || got[0].NotifiedAt != nil {
		t.Errorf("Ada has %v", got)
	}
	refused(t, errOf(session.Notifications.AddPushDevice(ctx, pushDevice("http://push.example.com/1"))), connect.CodeInvalidArgument, "https")
	remove := &arbev1.RemovePushDeviceRequest{Id: added.Id}
	refused(t, errOf(b.bob.Notifications.RemovePushDevice(ctx, remove)), connect.CodeNotFound, "no such device")
	must(t, errOf(session.Agents.EndSession(ctx, &arbev1.EndSessionRequest{})))
	if got := list(); len(got) != 0 {
		t.Errorf("after its browser logged out, Ada has %v", got)
	}
	// A program's device stays.
	added, err = b.ada.Notifications.AddPushDevice(ctx, pushDevice("https://push.example.com/2"))
	must(t, err)
	remove.Id = added.Id
	must(t, errOf(b.ada.Notifications.RemovePushDevice(ctx, remove)))
	if got := list(); len(got) != 0 {
		t.Errorf("without its device, Ada has %v", got)
	}
}

package push

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Device is a browser in which a person wants notifications.
type Device struct {
	ID string
	// Name is the browser, as it calls itself.
	Name    string
	AddedAt time.Time
	// NotifiedAt is when it was last notified; zero if never.
	NotifiedAt time.Time
}

// Address tells a sender how to reach a browser through its push service (RFC 8030, RFC 8291). The browser states it.
type Address struct {
	// Endpoint is the URL at the push service.
	Endpoint string `json:"endpoint"`
	// P256dh is the browser's public key, and Auth the secret that it shares with the sender, both in base64url.
	P256dh string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// Add adds a browser of the scope's agent, or updates it, and returns its id. The device is removed with the session that
// has this hash; if the hash is nil, it stays until somebody removes it.
func (p *Pusher) Add(ctx context.Context, scope db.Scope, a Address, name string, session []byte) (id string, err error) {
	if err := p.check(a); err != nil {
		return "", err
	}
	sealed, err := p.seal(scope.Agent, a)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(a.Endpoint))
	err = p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		id, err = p.q.AddPushDevice(ctx, tx, query.AddPushDeviceParams{Endpoint: hash[:], Sealed: sealed, Session: session, Name: name, Most: MaxDevices})
		if err == nil && id == "" {
			return fault.Newf(fault.Exhausted, "remove one that you no longer use", "you have %d devices with notifications", MaxDevices).WithReason(fault.LimitReached)
		}
		return err
	})
	return id, err
}

// Remove removes a device of the scope's agent. It gets no more notifications.
func (p *Pusher) Remove(ctx context.Context, scope db.Scope, id string) error {
	return p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		n, err := p.q.RemovePushDevice(ctx, tx, id)
		if err == nil && n == 0 {
			return fault.New(fault.NotFound, "you have no such device", "list them with: arbe notifications show")
		}
		return err
	})
}

// check returns an error if an address is not valid.
func (p *Pusher) check(a Address) error {
	u, err := url.Parse(a.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && p.PrivateHosts.AllowsURL(u)):
		return fault.New(fault.Invalid, "the endpoint is not the https address of a push service", "send what the browser's PushSubscription says")
	case !isPublicKey(a.P256dh) || len(decode(a.Auth)) != 16:
		return fault.New(fault.Invalid, "the keys are not those of a browser", "send what the browser's PushSubscription says")
	}
	return nil
}

func isPublicKey(text string) bool {
	_, err := ecdh.P256().NewPublicKey(decode(text))
	return err == nil
}

// decode returns the bytes of base64url without padding, or nil.
func decode(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

// seal seals an address. It can be opened only in a row of the same agent.
func (p *Pusher) seal(agent string, a Address) ([]byte, error) {
	text, err := json.Marshal(a)
	return p.sealer.Seal(nil, nil, text, []byte(agent)), err
}

func (p *Pusher) open(agent string, sealed []byte) (a Address, err error) {
	text, err := p.sealer.Open(nil, nil, sealed, []byte(agent))
	if err != nil {
		return a, errors.New("the address of the device cannot be opened: its seal belongs to another installation")
	}
	return a, json.Unmarshal(text, &a)
}

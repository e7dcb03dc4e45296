// Package push notifies people of what needs them while they do not look: at once on their devices (Web Push), and by mail, in
// digests.
//
// What needs a person is what the inbox of a house says (internal/inbox). [Pusher.Sweep] runs regularly on one server. It finds the
// devices and the people with something new, and notifies each device once of each change of a thread. It sends nothing about what
// is read or muted before that. A person has [Wait] to read it on an open page first. In their quiet hours nothing is sent; what is
// still unread afterwards is.
//
// A device has a position: it was notified of everything older. The position moves after the push service has accepted the notifications, so a crash may
// repeat one and never loses one. The repetition has the same tag, with which the browser replaces the first.
//
// A device belongs to the session of its browser, and ends with it. Its address and keys are sealed, because whoever knows them
// may send to it. Members choose the address, so only public addresses are called (internal/outbound).
package push

import (
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/outbound"
)

const (
	// Every is how often a server should call [Pusher.Sweep].
	Every = 15 * time.Second
	// Wait is how old something must be before a notification is sent.
	Wait = 10 * time.Second
	// MaxDevices limits the devices of a person.
	MaxDevices = 20
	// most limits the notifications of a sweep for one device and house. One more counts the other threads.
	most = 5
	// batch limits the devices, and the mails, of a sweep.
	batch = 200
	// lease is how long a server may take for a batch before another one may repeat what it does.
	lease = 2 * time.Minute
	// sendTimeout is how long a push service may take to answer.
	sendTimeout = 10 * time.Second
	// maxAnswer limits the bytes read of an answer and of its header, because anyone may have written them.
	maxAnswer = 16 << 10
)

// Config configures a [Pusher]. DB, Inboxes, DeviceKey, VAPIDSeed, URL and Logger are required.
type Config struct {
	DB      *db.DB
	Inboxes *inbox.Inboxes
	// DeviceKey are 32 secret bytes that seal the addresses of devices.
	DeviceKey []byte
	// VAPIDSeed are 32 secret bytes from which the key is derived with which push services recognize the server. If they change,
	// all devices have to be added again.
	VAPIDSeed []byte
	// URL is the address of the server for browsers, without a slash at its end.
	URL string
	// PrivateHosts may be push services without TLS and at private addresses.
	PrivateHosts outbound.Hosts
	// Mail sends the digests. Without an address of a mail server, there are none.
	Mail   Mail
	Logger *slog.Logger
	// Now returns the time, for quiet hours. Defaults to time.Now.
	Now func() time.Time
	// Wait defaults to the constant.
	Wait time.Duration
}

// Pusher notifies people of what needs them. It is safe for concurrent use.
type Pusher struct {
	Config
	q      *query.Queries
	sealer cipher.AEAD
	vapid  *ecdh.PrivateKey
	client *http.Client
	// sweeping is held during a sweep, so that a push service that is slow does not take all workers of the server's tasks.
	sweeping sync.Mutex
}

// New returns a pusher.
func New(c Config) (*Pusher, error) {
	c.Wait = cmp.Or(c.Wait, Wait)
	if c.Now == nil {
		c.Now = time.Now
	}
	sealer, err := newSealer(c.DeviceKey)
	if err != nil {
		return nil, err
	}
	return &Pusher{Config: c, q: query.New(), sealer: sealer, vapid: vapidKey(c.VAPIDSeed), client: outbound.Client(c.PrivateHosts, sendTimeout, 32, maxAnswer)}, nil
}

// PublicKey returns the key with which a browser asks its push service for an address, in base64url.
func (p *Pusher) PublicKey() string {
	return base64.RawURLEncoding.EncodeToString(p.vapid.PublicKey().Bytes())
}

// Sweep notifies everybody of what is new. It returns when it has asked all push services and mail servers, at most about a minute later.
// The failure of a single device or mail is no error. It does nothing while another call of it runs.
func (p *Pusher) Sweep(ctx context.Context) error {
	if !p.sweeping.TryLock() {
		return nil
	}
	defer p.sweeping.Unlock()
	bound, cancel := context.WithTimeout(ctx, lease/2) // what is left is claimed again after the lease
	defer cancel()
	if err := errors.Join(p.sweepDevices(bound), p.sweepDigests(bound)); bound.Err() == nil {
		return err
	}
	return ctx.Err()
}

// Package push notifies people who are away of what needs them: at once on their devices (Web Push), and in mail digests.
//
// The inbox of a house (internal/inbox) says what needs a person. [Pusher.Sweep] runs regularly on one server. It finds
// devices and people with news, and notifies each device once of each change of a thread. A person first has [Wait] to read
// the change on an open page; nothing is sent about threads that they have read or muted by then. In their quiet hours
// nothing is sent, and afterwards only what is still unread.
//
// Each device has a position: it has been notified of everything before that. The position moves only after the push service
// has accepted the notifications, so a crash may repeat one but never loses one. A repeated notification has the same tag,
// so the browser replaces the first one with it.
//
// A device belongs to the session of its browser, and ends with it. Its address and keys are sealed, because anybody who
// knows them can send to it. Members choose the address, so the server calls only public addresses (internal/outbound).
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
	// Wait is how old a need must be before it is notified.
	Wait = 10 * time.Second
	// MaxDevices limits the devices of a person.
	MaxDevices = 20
	// most limits the notifications of a sweep for one device and house. If there are more, one further notification
	// counts the remaining threads.
	most = 5
	// batch limits the devices, and the mails, of a sweep.
	batch = 200
	// lease is how long a server may take for a batch. Then another server may repeat it.
	lease = 2 * time.Minute
	// sendTimeout is how long a push service may take to answer.
	sendTimeout = 10 * time.Second
	// maxAnswer limits the bytes read of a response and of its header, because anybody may have written them.
	maxAnswer = 16 << 10
)

// Config configures a [Pusher]. DB, Inboxes, DeviceKey, VAPIDSeed, URL and Logger are required.
type Config struct {
	DB      *db.DB
	Inboxes *inbox.Inboxes
	// DeviceKey are 32 secret bytes that seal the addresses of devices.
	DeviceKey []byte
	// VAPIDSeed are 32 secret bytes. The key by which push services recognize the server derives from them. If they change,
	// people must add all devices again.
	VAPIDSeed []byte
	// URL is the address of the server for browsers, without a slash at its end.
	URL string
	// PrivateHosts are push services that may have private addresses and no TLS.
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
	// sweeping is held during a sweep, so that a slow push service does not occupy all workers of the server's tasks.
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

// PublicKey returns the key that a browser gives its push service to get an address, in base64url.
func (p *Pusher) PublicKey() string {
	return base64.RawURLEncoding.EncodeToString(p.vapid.PublicKey().Bytes())
}

// Sweep notifies everybody of their news. It returns after it has called all push services and mail servers, at most about a
// minute later. If a single device or mail fails, that is not an error. It does nothing while another call of it runs.
func (p *Pusher) Sweep(ctx context.Context) error {
	if !p.sweeping.TryLock() {
		return nil
	}
	defer p.sweeping.Unlock()
	bound, cancel := context.WithTimeout(ctx, lease/2) // the rest is claimed again after the lease
	defer cancel()
	if err := errors.Join(p.sweepDevices(bound), p.sweepDigests(bound)); bound.Err() == nil {
		return err
	}
	return ctx.Err()
}

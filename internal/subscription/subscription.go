// Package subscription wakes those who work on what comes into streams: a subscription is a durable cursor over
// streams of a house, named or found by a pattern (§6 and §7 of the Durable Streams protocol).
//
// A subscription with something behind its cursors gets a wake, one at a time: its webhook is called, or an
// event is written to its wake stream and a worker claims it. Whoever was woken acknowledges how far it worked;
// when it does not in time, the next wake begins, and fences the last one out by its generation.
//
// How it is laid out: this file makes and shows subscriptions, lease.go is what workers do with a wake, wake.go
// begins wakes and tells of them, webhook.go calls and signs. All of its state is rows, so that any server goes
// on where another one stopped.
//
// The rule to remember: a wake says that there is something, never what: that is in the streams.
package subscription

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// The kinds of subscriptions.
const (
	webhook  = "webhook"
	pullWake = "pull-wake"
)

// Config is what [Start] works with.
type Config struct {
	DB  *db.DB
	Log *stream.Log
	// Key signs what webhooks are sent. Servers on one database share it.
	Key ed25519.PrivateKey
	// LocalWebhooks allows webhooks on this machine, without TLS: for development. Defaults to false.
	LocalWebhooks bool
	Logger        *slog.Logger
}

// Subscriptions are all subscriptions of a database. It is safe for concurrent use.
type Subscriptions struct {
	Config
	client *http.Client
	kick   chan struct{}

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	// telling bounds how many wakes are told at the same time.
	telling chan struct{}
}

// Spec is what a subscription is asked to be.
type Spec struct {
	Type string `json:"type"`
	// Pattern finds streams by name: * is one word of a path and ** is any number of them. Defaults to "", none.
	Pattern string `json:"pattern,omitempty"`
	// Streams are streams by name, which need not be there yet.
	Streams []string `json:"streams,omitempty"`
	Webhook *Webhook `json:"webhook,omitempty"`
	// WakeStream is where a pull-wake subscription writes its wakes.
	WakeStream string `json:"wake_stream,omitempty"`
	// LeaseMS is how long a worker may be silent, in milliseconds. Defaults to 30,000.
	LeaseMS     int64  `json:"lease_ttl_ms"`
	Description string `json:"description,omitempty"`
}

// Webhook is where wakes are sent.
type Webhook struct {
	URL string `json:"url"`
}

// Subscription is a subscription as it stands.
type Subscription struct {
	Name string
	Spec
	CreatedAt time.Time
	// Failing says that the last wake could not be told, and is told again later.
	Failing bool
	Streams []Link
	// BaseURL is what its maker reached the streams under.
	BaseURL string
}

// Link is a stream of a subscription.
type Link struct {
	Stream   string
	Explicit bool
	// Acked is the last position that was worked on, and Tail the last one there is.
	Acked, Tail int64
}

var queries = query.New()

const (
	defaultLease       = 30_000
	minLease, maxLease = 1_000, 600_000
	maxStreams         = 1_000
	maxText            = 1_000
)

// ErrURL is the cause of a [fault.Invalid]: a webhook's URL leads where none may.
var ErrURL = errors.New("the webhook's URL is not allowed")

// Create makes a subscription in a house, and reports whether there was none. baseURL is what the streams are
// reached under, for callbacks. Streams that are there count from their end on, later ones from their start.
// Errors: [fault.Invalid], [fault.Exists] for another one of this name.
func (s *Subscriptions) Create(ctx context.Context, house, name, baseURL string, spec Spec) (sub Subscription, created bool, err error) {
	matching, err := s.check(&spec)
	if err != nil {
		return sub, false, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return sub, false, err
	}
	err = s.in(ctx, house, func(tx pgx.Tx) error {
		if err := queries.LockSubscriptionStreams(ctx, tx, house); err != nil {
			return err
		}
		n, err := queries.InsertSubscription(ctx, tx, query.InsertSubscriptionParams{
			HouseID: house, Name: name, Spec: text, BaseUrl: baseURL, Kind: spec.Type, Matching: db.Null(matching), LeaseMs: spec.LeaseMS,
		})
		if err != nil {
			return err
		}
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		if created = n > 0; created {
			if err := queries.LinkMatching(ctx, tx, row.ID); err != nil {
				return err
			}
			if err := queries.LinkStreams(ctx, tx, row.ID, house, spec.Streams); err != nil {
				return err
			}
		}
		if sub, err = show(ctx, tx, name, row); err != nil {
			return err
		}
		if there, _ := json.Marshal(sub.Spec); !bytes.Equal(there, text) {
			return fault.Newf(fault.Exists, "use another name, or delete it first", "there is another subscription %s already", name)
		}
		return nil
	})
	return sub, created, err
}

// Get shows a subscription.
func (s *Subscriptions) Get(ctx context.Context, house, name string) (sub Subscription, err error) {
	err = s.in(ctx, house, func(tx pgx.Tx) error {
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		sub, err = show(ctx, tx, name, row)
		return err
	})
	return sub, err
}

// Delete deletes a subscription; who was woken by it is fenced out.
func (s *Subscriptions) Delete(ctx context.Context, house, name string) error {
	return s.in(ctx, house, func(tx pgx.Tx) error {
		n, err := queries.DeleteSubscription(ctx, tx, house, name)
		if err == nil && n == 0 {
			return noSubscription(name)
		}
		return err
	})
}

// Link adds streams by name, from their end on.
func (s *Subscriptions) Link(ctx context.Context, house, name string, streams []string) error {
	if len(streams) == 0 || len(streams) > maxStreams {
		return fault.Newf(fault.Invalid, "name some", "streams: from 1 to %d names", maxStreams)
	}
	return s.in(ctx, house, func(tx pgx.Tx) error {
		if err := queries.LockSubscriptionStreams(ctx, tx, house); err != nil {
			return err
		}
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		return queries.LinkStreams(ctx, tx, row.ID, house, unique(streams))
	})
}

// Unlink takes a stream away that was added by name; it stays when the pattern finds it.
func (s *Subscriptions) Unlink(ctx context.Context, house, name, stream string) error {
	return s.in(ctx, house, func(tx pgx.Tx) error {
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		return queries.UnlinkStream(ctx, tx, row.ID, stream)
	})
}

// check makes a spec complete, and says what is wrong with it. It returns the regular expression of its pattern.
func (s *Subscriptions) check(spec *Spec) (matching string, err error) {
	invalid := func(field, is, next string) (string, error) {
		return "", fault.New(fault.Invalid, field+": "+is, next)
	}
	spec.Streams = unique(spec.Streams)
	if spec.LeaseMS == 0 {
		spec.LeaseMS = defaultLease
	}
	if spec.Pattern != "" {
		matching = expression(spec.Pattern)
	}
	switch {
	case spec.Pattern == "" && len(spec.Streams) == 0:
		return invalid("pattern", "there is neither a pattern nor a stream", "send one of them")
	case len(spec.Pattern) > maxText || len(spec.Description) > maxText || len(spec.Streams) > maxStreams:
		return invalid("pattern, description, streams", "too long", "shorten them")
	case spec.LeaseMS < minLease || spec.LeaseMS > maxLease:
		return invalid("lease_ttl_ms", "it is not from 1,000 to 600,000", "leave it out for 30 seconds")
	case spec.Type == webhook && (spec.Webhook == nil || spec.WakeStream != ""):
		return invalid("webhook", "a webhook subscription has a webhook.url, and no wake_stream", "send both as they should be")
	case spec.Type == pullWake && (spec.WakeStream == "" || spec.Webhook != nil):
		return invalid("wake_stream", "a pull-wake subscription has a wake_stream, and no webhook", "send both as they should be")
	case spec.Type == pullWake && (slices.Contains(spec.Streams, spec.WakeStream) || matching != "" && regexp.MustCompile(matching).MatchString(spec.WakeStream)):
		return invalid("wake_stream", "the subscription would wake itself without end", "use a wake stream that it does not follow")
	case spec.Type == webhook:
		return matching, s.checkURL(spec.Webhook.URL)
	case spec.Type != pullWake:
		return invalid("type", "it is no type of subscription", "use webhook or pull-wake")
	}
	return matching, nil
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// lock finds a subscription and holds its row until the transaction ends.
func lock(ctx context.Context, tx pgx.Tx, house, name string) (query.LockSubscriptionRow, error) {
	row, err := queries.LockSubscription(ctx, tx, house, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, noSubscription(name).Because(err)
	}
	return row, err
}

func noSubscription(name string) *fault.Error {
	return fault.Newf(fault.NotFound, "check its name, or create it", "there is no subscription %s in this house", name)
}

func show(ctx context.Context, tx pgx.Tx, name string, row query.LockSubscriptionRow) (Subscription, error) {
	sub := Subscription{Name: name, CreatedAt: row.CreatedAt, Failing: row.Attempts > 0, BaseURL: row.BaseUrl}
	if err := json.Unmarshal(row.Spec, &sub.Spec); err != nil {
		return sub, err
	}
	var err error
	sub.Streams, err = links(ctx, tx, row.ID)
	return sub, err
}

func links(ctx context.Context, tx pgx.Tx, id int64) (all []Link, err error) {
	rows, err := queries.SubscriptionTails(ctx, tx, id)
	for _, r := range rows {
		all = append(all, Link(r))
	}
	return all, err
}

func (s *Subscriptions) in(ctx context.Context, house string, f func(tx pgx.Tx) error) error {
	return s.DB.In(ctx, db.Scope{House: house}, f)
}

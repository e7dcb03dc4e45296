// Package subscription wakes workers when streams get new entries. A subscription is a durable cursor over streams of a
// house, which are listed by name or matched by a pattern. It implements subscriptions of the Durable Streams protocol.
//
// A subscription with unprocessed entries gets one wake at a time: its webhook is called, or an event is written to its
// wake stream and a worker claims it. The worker acknowledges the positions that it has processed. If it is too late,
// the next wake begins. Its higher generation fences off the previous worker.
//
// This file creates and shows subscriptions, lease.go is the workers' side of a wake, wake.go starts and delivers
// wakes, and webhook.go calls and signs. All state is in rows, so any server can continue the work of another.
//
// The rule to remember: a wake says only that there are new entries. The entries themselves are in the streams, so a
// lost or repeated wake never loses or repeats an entry.
package subscription

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"net/netip"
	"net/url"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/stream"
)

// The kinds of subscription.
const (
	webhook  = "webhook"
	pullWake = "pull-wake"
)

// Config configures [Start].
type Config struct {
	DB  *db.DB
	Log *stream.Log
	// Key signs the requests to webhooks. Servers on one database must share it, because any of them may call a
	// webhook.
	Key ed25519.PrivateKey
	// PrivateHosts are hosts, as written in webhook URLs, that may have private addresses and be called without TLS.
	// Defaults to none.
	PrivateHosts outbound.Hosts
	Logger       *slog.Logger
}

// Subscriptions gives access to all subscriptions of a database, and delivers wakes. It is safe for concurrent use.
type Subscriptions struct {
	Config
	client *http.Client
	kick   chan struct{}

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	// deliveries limits the wakes being delivered, and redeliveries those among them that have failed before, so that
	// webhooks that do not answer do not hold up the others.
	deliveries, redeliveries chan struct{}
}

// Spec is the specification of a subscription.
type Spec struct {
	Type string `json:"type"`
	// Pattern matches streams by name: * is one word of a path and ** any number of words. Defaults to "": none.
	Pattern string `json:"pattern,omitempty"`
	// Streams are names of streams, which need not exist yet.
	Streams []string `json:"streams,omitempty"`
	Webhook *Webhook `json:"webhook,omitempty"`
	// WakeStream is the stream to which a pull-wake subscription writes its wakes.
	WakeStream string `json:"wake_stream,omitempty"`
	// LeaseMS is how long a worker may be silent before its wake ends, in milliseconds. Defaults to 30,000.
	LeaseMS     int64  `json:"lease_ttl_ms"`
	Description string `json:"description,omitempty"`
}

// Webhook is where wakes are delivered.
type Webhook struct {
	URL string `json:"url"`
}

// Subscription is a subscription with its current state.
type Subscription struct {
	Name string
	Spec
	CreatedAt time.Time
	// Failing reports that the last delivery of a wake failed. It will be retried.
	Failing bool
	Streams []Link
	// BaseURL is the URL under which the subscription's creator reached the streams.
	BaseURL string
}

// Link is a stream of a subscription.
type Link struct {
	Stream   string
	Explicit bool
	// Acked is the last position that was processed, and Tail the stream's last position.
	Acked, Tail int64
}

var queries = query.New()

// wildcards are the parts of a pattern that match more than one text.
var wildcards = lazyregexp.New(`\*+`)

const (
	defaultLease       = 30_000
	minLease, maxLease = 1_000, 600_000
	maxStreams         = 1_000
	maxText            = 1_000
	// maxWildcards limits a pattern, because the cost of matching it against a name grows with the square of their
	// number.
	maxWildcards = 16
	// These limit the work for each new stream of a house and for each wake: the subscriptions of a house, those with
	// patterns, and the streams that they name.
	maxSubscriptions, maxPatterns, maxNamed = 1_000, 100, 10_000
)

// ErrURL is the cause of a [fault.Invalid]: a webhook's URL is not allowed.
var ErrURL = errors.New("the webhook's URL is not allowed")

// Create creates a subscription in a house and reports whether it did. baseURL is the URL under which the streams are
// reached, for callbacks. Existing streams are followed from their end, later ones from their start. If a subscription
// of this name with the same specification exists, Create returns it. Errors: [fault.Invalid], and [fault.Exists] for a
// subscription of this name with another specification.
func (s *Subscriptions) Create(ctx context.Context, house, name, baseURL string, spec Spec) (sub Subscription, created bool, err error) {
	matching, err := s.check(&spec)
	if err != nil {
		return sub, false, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return sub, false, err
	}
	p := query.InsertSubscriptionParams{
		HouseID: house, Name: name, Spec: text, BaseUrl: baseURL, Kind: spec.Type, Matching: db.Null(matching), LeaseMs: spec.LeaseMS,
	}
	err = s.in(ctx, house, func(tx pgx.Tx) error {
		var row query.LockSubscriptionRow
		if row, created, err = insert(ctx, tx, p); err != nil {
			return err
		}
		if created {
			if err := link(ctx, tx, house, row.ID, spec.Streams); err != nil {
				return err
			}
		}
		if sub, err = show(ctx, tx, name, row); err != nil {
			return err
		}
		if there, _ := json.Marshal(sub.Spec); !bytes.Equal(there, text) {
			return fault.Newf(fault.Exists, "use another name, or delete it first", "there is already a different subscription %s", name)
		}
		return nil
	})
	return sub, created, err
}

// insert inserts a subscription unless there is one of its name, and returns and locks the row.
func insert(ctx context.Context, tx pgx.Tx, p query.InsertSubscriptionParams) (row query.LockSubscriptionRow, created bool, err error) {
	// Otherwise a stream that is created at the same time might not be linked.
	if err := queries.LockSubscriptionStreams(ctx, tx, p.HouseID); err != nil {
		return row, false, err
	}
	n, err := queries.InsertSubscription(ctx, tx, p)
	if err != nil {
		return row, false, err
	}
	row, err = lock(ctx, tx, p.HouseID, p.Name)
	return row, n > 0, err
}

// link links the streams that a new subscription follows.
func link(ctx context.Context, tx pgx.Tx, house string, id int64, streams []string) error {
	if err := queries.LinkMatching(ctx, tx, id); err != nil {
		return err
	}
	if err := queries.LinkStreams(ctx, tx, id, house, streams); err != nil {
		return err
	}
	return checkHouse(ctx, tx, house)
}

// Get returns a subscription.
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

// Delete deletes a subscription and fences off the holder of its wake.
func (s *Subscriptions) Delete(ctx context.Context, house, name string) error {
	return s.in(ctx, house, func(tx pgx.Tx) error {
		n, err := queries.DeleteSubscription(ctx, tx, house, name)
		if err == nil && n == 0 {
			return noSubscription(name)
		}
		return err
	})
}

// Link adds streams by name, which are followed from their end.
func (s *Subscriptions) Link(ctx context.Context, house, name string, streams []string) error {
	if len(streams) == 0 || len(streams) > maxStreams {
		return fault.Newf(fault.Invalid, "name at least one stream", "streams: name from 1 to %d of them", maxStreams)
	}
	return s.in(ctx, house, func(tx pgx.Tx) error {
		if err := queries.LockSubscriptionStreams(ctx, tx, house); err != nil {
			return err
		}
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		if err := queries.LinkStreams(ctx, tx, row.ID, house, unique(streams)); err != nil {
			return err
		}
		return checkHouse(ctx, tx, house)
	})
}

// checkHouse returns an error if a house's subscriptions exceed its limits. The caller holds the house's lock and has
// written its change; otherwise concurrent changes could exceed them together.
func checkHouse(ctx context.Context, tx pgx.Tx, house string) error {
	n, err := queries.CountSubscriptions(ctx, tx, house)
	switch {
	case err != nil:
		return err
	case n.Subscriptions > maxSubscriptions, n.Patterns > maxPatterns, n.Links > maxNamed:
		return fault.Newf(fault.Exhausted, "delete unused subscriptions, or replace several streams with one pattern",
			"a house can have at most %d subscriptions, %d of them with a pattern, which name %d streams in all", maxSubscriptions, maxPatterns, maxNamed)
	}
	return nil
}

// Unlink removes a stream that was added by name. The stream stays if the pattern matches it.
func (s *Subscriptions) Unlink(ctx context.Context, house, name, stream string) error {
	return s.in(ctx, house, func(tx pgx.Tx) error {
		row, err := lock(ctx, tx, house, name)
		if err != nil {
			return err
		}
		return queries.UnlinkStream(ctx, tx, row.ID, stream)
	})
}

// check fills in a spec's defaults and validates it. It returns the regular expression of its pattern.
func (s *Subscriptions) check(spec *Spec) (matching string, err error) {
	invalid := func(field, is, next string) (string, error) {
		return "", fault.New(fault.Invalid, field+": "+is, next)
	}
	spec.Streams = unique(spec.Streams)
	spec.LeaseMS = cmp.Or(spec.LeaseMS, defaultLease)
	if spec.Pattern != "" && len(spec.Pattern) <= maxText {
		matching = expression(spec.Pattern)
	}
	switch {
	case spec.Pattern == "" && len(spec.Streams) == 0:
		return invalid("pattern", "there is neither a pattern nor a stream", "send one of them")
	case len(spec.Pattern) > maxText || len(spec.Description) > maxText || len(spec.Streams) > maxStreams:
		return invalid("pattern, description, streams", "one of them is too long", "shorten them")
	case len(wildcards.FindAllString(spec.Pattern, maxWildcards+1)) > maxWildcards:
		return invalid("pattern", fmt.Sprintf("it has more than %d wildcards", maxWildcards), "use fewer; ** alone stands for any number of words")
	case spec.LeaseMS < minLease || spec.LeaseMS > maxLease:
		return invalid("lease_ttl_ms", "the lease must be from 1,000 to 600,000 milliseconds", "leave it out for 30 seconds")
	case spec.Type == webhook && (spec.Webhook == nil || spec.WakeStream != ""):
		return invalid("webhook", "a webhook subscription has a webhook.url and no wake_stream", "send a webhook.url, and leave out wake_stream")
	case spec.Type == pullWake && (spec.WakeStream == "" || spec.Webhook != nil):
		return invalid("wake_stream", "a pull-wake subscription has a wake_stream and no webhook", "send a wake_stream, and leave out webhook")
	case spec.Type == pullWake && (slices.Contains(spec.Streams, spec.WakeStream) || matching != "" && regexp.MustCompile(matching).MatchString(spec.WakeStream)):
		return invalid("wake_stream", "the subscription would wake itself endlessly", "use a wake stream that the subscription does not follow")
	case spec.Type == webhook:
		return matching, s.checkURL(spec.Webhook.URL)
	case spec.Type != pullWake:
		return invalid("type", "this type of subscription does not exist", "use webhook or pull-wake")
	}
	return matching, nil
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// lock finds a subscription and locks its row until the transaction ends.
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

// wakeLoop makes the loop check for work now.
func (s *Subscriptions) wakeLoop() {
	select {
	case s.kick <- struct{}{}:
	default: // the loop will check anyway, because a token is already pending
	}
}

// checkURL validates a webhook's URL. The address behind its host name is checked with every call, because it may
// change. Without https, the callback's token in the body would be readable on the way.
func (s *Subscriptions) checkURL(text string) error {
	u, err := url.Parse(text)
	refused := fault.New(fault.Invalid, "webhook.url: webhooks may not be sent to this address", "use a public address that begins with https://").Because(ErrURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || len(text) > maxText:
		return refused
	case (u.Scheme == "http" || u.Scheme == "https") && s.PrivateHosts.AllowsURL(u):
		return nil
	case u.Scheme != "https" || u.Hostname() == "localhost":
		return refused
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !outbound.Public(ip) {
		return refused
	}
	return nil
}

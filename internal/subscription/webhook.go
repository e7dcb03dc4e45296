package subscription

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// answerWithin is how long a webhook may take to answer.
	answerWithin = 15 * time.Second
	// maxAnswer bounds what is read of a webhook's answer, in bytes.
	maxAnswer = 64 << 10
)

// checkURL says what is wrong with a webhook's URL. Where its name leads is looked at with every call.
func (s *Subscriptions) checkURL(text string) error {
	u, err := url.Parse(text)
	refused := fault.New(fault.Invalid, "webhook.url: it leads where no webhook may be", "use a public address that begins with https://").Because(ErrURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || len(text) > maxText:
		return refused
	case s.LocalWebhooks && u.Scheme == "http" && (u.Hostname() == "localhost" || strings.HasPrefix(u.Hostname(), "127.0.0.")):
		return nil
	case u.Scheme != "https" || u.Hostname() == "localhost":
		return refused
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !public(ip) {
		return refused
	}
	return nil
}

// private are the networks beyond those that netip knows by name: carriers' own, and those of tests and
// translations.
var private = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16"),
}

// public tells whether an address is one of the internet's.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	for _, p := range private {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// newClient calls webhooks, and nothing inside of the server's own network: what an address is is looked at when
// the connection is made, after its name was resolved.
func (s *Subscriptions) newClient() *http.Client {
	dialer := &net.Dialer{Timeout: answerWithin, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !public(at.Addr()) && !(s.LocalWebhooks && at.Addr().IsLoopback()) {
			return ErrURL
		}
		return nil
	}}
	return &http.Client{
		Timeout:       answerWithin,
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Place is a [Link] as clients read it.
type Place struct {
	Path    string `json:"path"`
	Kind    string `json:"link_type"`
	Acked   string `json:"acked_offset"`
	Tail    string `json:"tail_offset"`
	Pending bool   `json:"has_pending"`
}

// Places are links as clients read them.
func Places(links []Link) []Place {
	places := make([]Place, len(links))
	for i, l := range links {
		places[i] = Place{l.Stream, "glob", stream.Offset(l.Acked), stream.Offset(l.Tail), l.Tail > l.Acked}
		if l.Explicit {
			places[i].Kind = "explicit"
		}
	}
	return places
}

// notice is a wake as a webhook gets it.
type notice struct {
	Subscription string  `json:"subscription_id"`
	WakeID       string  `json:"wake_id"`
	Generation   int64   `json:"generation"`
	Streams      []Place `json:"streams"`
	CallbackURL  string  `json:"callback_url"`
	Token        string  `json:"callback_token"`
}

// call sends a wake to its webhook. One that answers that it is done has worked on all it was told of.
func (s *Subscriptions) call(w query.BeginWakesRow, sub Subscription, held Wake) error {
	body, err := json.Marshal(notice{sub.Name, held.ID, held.Generation, Places(held.Streams), sub.BaseURL + "__ds/subscriptions/" + sub.Name + "/callback", held.Token})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, sub.Webhook.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Signature", s.sign(time.Now(), body))
	res, err := s.client.Do(req)
	if err != nil {
		return fault.New(fault.Unavailable, "the webhook cannot be reached", "check its URL").Because(err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fault.Newf(fault.Unavailable, "check the webhook", "the webhook answered with status %d", res.StatusCode)
	}
	var answer struct{ Done bool }
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || json.Unmarshal(text, &answer) != nil || !answer.Done {
		return nil // it calls back, or lets the lease end
	}
	acked := map[string]int64{}
	for _, l := range held.Streams {
		acked[l.Stream] = l.Tail
	}
	if _, err = s.Acknowledge(s.ctx, sub.Name, held.Token, Ack{held.ID, held.Generation, acked, true}); fault.CodeOf(err) == fault.Aborted {
		return nil // it was done by a callback before
	}
	return err
}

// sign is the signature of a body that is sent now.
func (s *Subscriptions) sign(now time.Time, body []byte) string {
	signed := fmt.Appendf(nil, "%d.%s", now.Unix(), body)
	return fmt.Sprintf("t=%d,kid=%s,ed25519=%s", now.Unix(), s.KeyID(), base64.RawURLEncoding.EncodeToString(ed25519.Sign(s.Key, signed)))
}

// PublicKey is what signatures are checked with.
func (s *Subscriptions) PublicKey() ed25519.PublicKey { return s.Key.Public().(ed25519.PublicKey) }

// KeyID names the key, by what it is.
func (s *Subscriptions) KeyID() string {
	sum := sha256.Sum256(s.PublicKey())
	return "ds_" + base64.RawURLEncoding.EncodeToString(sum[:9])
}

package door

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

// reserved begins the names that are the protocol's own.
const reserved = "__ds/"

// subscriptionForm takes apart what a path under reserved is about: a subscription, and a part of it.
var subscriptionForm = regexp.MustCompile(`^__ds/subscriptions/([A-Za-z0-9._~-]{1,100})(?:/(streams|callback|claim|ack|release)(?:/(.+))?)?$`)

// control answers a request for what is the protocol's own: subscriptions, and the key their webhooks sign with.
func (d *Door) control(w http.ResponseWriter, r *http.Request, name string) error {
	if d.Subscriptions == nil {
		return fault.New(fault.Unimplemented, "names that begin with "+reserved+" are the protocol's own, and this server has no subscriptions", "use another name")
	}
	if name == reserved+"jwks.json" && r.Method == http.MethodGet {
		return d.keys(w)
	}
	m := subscriptionForm.FindStringSubmatch(name)
	if m == nil {
		return fault.New(fault.NotFound, "there is nothing here", "subscriptions are under "+reserved+"subscriptions/")
	}
	c := control{Door: d, Request: r, w: w, name: m[1], path: m[3]}
	do, ok := controls[r.Method+" "+m[2]]
	if !ok || m[3] != "" && m[2] != "streams" {
		return refusal{http.StatusMethodNotAllowed, fault.New(fault.Unimplemented, "a subscription does not do this", "look into §6 and §7 of the protocol")}
	}
	switch m[2] {
	case "callback", "ack", "release": // whoever was woken shows the wake's token
	default:
		action := auth.Write
		if r.Method == http.MethodGet {
			action = auth.Read
		}
		pass, err := d.Authorize(r, action, name)
		if err != nil {
			return err
		}
		c.house = pass.House
	}
	return do(c)
}

// control is a request about one subscription.
type control struct {
	*Door
	*http.Request
	w     http.ResponseWriter
	house string
	name  string
	// path is the stream that the request is about, if it is about one.
	path string
}

var controls = map[string]func(c control) error{
	"PUT ":           control.put,
	"GET ":           control.get,
	"DELETE ":        control.delete,
	"POST streams":   control.link,
	"DELETE streams": control.unlink,
	"POST claim":     control.claim,
	"POST callback":  control.acknowledge,
	"POST ack":       control.acknowledge,
	"POST release":   control.release,
}

// wireLink is a stream of a subscription.
type wireLink struct {
	Path  string `json:"path"`
	Kind  string `json:"link_type"`
	Acked string `json:"acked_offset"`
}

// wireWebhook is where wakes go, and how to know them.
type wireWebhook struct {
	URL     string `json:"url"`
	Signing struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		KeysURL   string `json:"jwks_url"`
	} `json:"signing"`
}

// wireSubscription is a subscription as clients read it.
type wireSubscription struct {
	ID             string       `json:"id"`
	SubscriptionID string       `json:"subscription_id"`
	Type           string       `json:"type"`
	Pattern        *string      `json:"pattern"`
	Streams        []wireLink   `json:"streams"`
	Webhook        *wireWebhook `json:"webhook"`
	WakeStream     *string      `json:"wake_stream"`
	LeaseMS        int64        `json:"lease_ttl_ms"`
	CreatedAt      time.Time    `json:"created_at"`
	Status         string       `json:"status"`
	Description    *string      `json:"description"`
}

func (c control) put() error {
	var spec subscription.Spec
	if err := c.decode(&spec); err != nil {
		return err
	}
	for _, name := range append([]string{spec.WakeStream}, spec.Streams...) {
		if name != "" {
			if _, err := streamName(name); err != nil {
				return err
			}
		}
	}
	if _, thread := threadOf(spec.WakeStream); thread {
		return fault.New(fault.Invalid, "wake_stream: a thread takes no wakes", "make a stream of its own for them")
	}
	base, _, _ := strings.Cut(location(c.Request), reserved)
	sub, created, err := c.Subscriptions.Create(c.Context(), c.house, c.name, base, spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.answer(status, c.wire(sub))
}

func (c control) get() error {
	sub, err := c.Subscriptions.Get(c.Context(), c.house, c.name)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, c.wire(sub))
}

func (c control) wire(sub subscription.Subscription) wireSubscription {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out := wireSubscription{
		ID: sub.Name, SubscriptionID: sub.Name, Type: sub.Type, Pattern: text(sub.Pattern), Streams: []wireLink{}, WakeStream: text(sub.WakeStream),
		LeaseMS: sub.LeaseMS, CreatedAt: sub.CreatedAt, Status: "active", Description: text(sub.Description),
	}
	if sub.Failing {
		out.Status = "failed"
	}
	for _, p := range subscription.Places(sub.Streams) {
		out.Streams = append(out.Streams, wireLink{p.Path, p.Kind, p.Acked})
	}
	if sub.Webhook != nil {
		hook := wireWebhook{URL: sub.Webhook.URL}
		hook.Signing.Algorithm, hook.Signing.KeyID, hook.Signing.KeysURL = "ed25519", c.Subscriptions.KeyID(), sub.BaseURL+reserved+"jwks.json"
		out.Webhook = &hook
	}
	return out
}

func (c control) delete() error {
	if err := c.Subscriptions.Delete(c.Context(), c.house, c.name); err != nil {
		return err
	}
	return c.answer(http.StatusNoContent, nil)
}

func (c control) link() error {
	var body struct{ Streams []string }
	if err := c.decode(&body); err != nil {
		return err
	}
	for _, name := range body.Streams {
		if _, err := streamName(name); err != nil {
			return err
		}
	}
	if err := c.Subscriptions.Link(c.Context(), c.house, c.name, body.Streams); err != nil {
		return err
	}
	return c.answer(http.StatusNoContent, nil)
}

func (c control) unlink() error {
	if err := c.Subscriptions.Unlink(c.Context(), c.house, c.name, c.path); err != nil {
		return err
	}
	return c.answer(http.StatusNoContent, nil)
}

func (c control) claim() error {
	var body struct{ Worker string }
	if err := c.decode(&body); err != nil {
		return err
	}
	wake, err := c.Subscriptions.Claim(c.Context(), c.house, c.name, body.Worker)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{
		"wake_id": wake.ID, "generation": wake.Generation, "token": wake.Token,
		"streams": subscription.Places(wake.Streams), "lease_ttl_ms": wake.LeaseMS,
	})
}

func (c control) acknowledge() error {
	token, ack, err := c.ack()
	if err != nil {
		return err
	}
	more, err := c.Subscriptions.Acknowledge(c.Context(), c.name, token, ack)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]bool{"ok": true, "next_wake": more})
}

func (c control) release() error {
	token, ack, err := c.ack()
	if err != nil {
		return err
	}
	if err := c.Subscriptions.Release(c.Context(), c.name, token, ack); err != nil {
		return err
	}
	return c.answer(http.StatusNoContent, nil)
}

// ack is what the holder of a wake says, and its token.
func (c control) ack() (token string, ack subscription.Ack, err error) {
	token, cookie := auth.Credential(c.Header)
	if token == "" || cookie {
		return "", ack, fault.New(fault.Unauthenticated, "the wake's token is missing", "show it as a bearer token")
	}
	var body struct {
		WakeID     string `json:"wake_id"`
		Generation int64
		Acks       []struct{ Stream, Offset string }
		Done       bool
	}
	if err := c.decode(&body); err != nil {
		return "", ack, err
	}
	ack = subscription.Ack{WakeID: body.WakeID, Generation: body.Generation, Acked: map[string]int64{}, Done: body.Done}
	for _, a := range body.Acks {
		seq, err := stream.ParseOffset(a.Offset)
		if err != nil {
			return "", ack, err
		}
		ack.Acked[a.Stream] = max(ack.Acked[a.Stream], seq)
	}
	return token, ack, nil
}

// decode reads the request's body, which is JSON.
func (c control) decode(to any) error {
	body, err := content(c.w, request{Request: c.Request})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fault.New(fault.Invalid, "the body is not the JSON that this takes", "look into §6 and §7 of the protocol").Because(err)
	}
	return nil
}

func (c control) answer(status int, body any) error {
	return answerJSON(c.w, "application/json", "no-store", status, body)
}

// keys answers with the key that webhooks' signatures are checked with.
func (d *Door) keys(w http.ResponseWriter) error {
	key := map[string]string{
		"kty": "OKP", "crv": "Ed25519", "kid": d.Subscriptions.KeyID(), "use": "sig", "alg": "EdDSA",
		"x": base64.RawURLEncoding.EncodeToString(d.Subscriptions.PublicKey()),
	}
	return answerJSON(w, "application/jwk-set+json", "public, max-age=300", http.StatusOK, map[string]any{"keys": []any{key}})
}

func answerJSON(w http.ResponseWriter, kind, cache string, status int, body any) error {
	w.Header().Set("Cache-Control", cache)
	if body == nil {
		w.WriteHeader(status)
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	w.Write(text) // who went away is not told
	return nil
}

// protocolCode is how the protocol calls an error about subscriptions, and what it tells besides.
func protocolCode(f *failure, status *int, err error) {
	var held *subscription.HeldError
	switch {
	case errors.Is(err, subscription.ErrURL):
		f.Code = "WEBHOOK_URL_REJECTED"
	case errors.Is(err, subscription.ErrFenced):
		f.Code, *status = "FENCED", http.StatusConflict
	case errors.As(err, &held):
		f.Code, f.Holder, f.Generation = "ALREADY_CLAIMED", held.Holder, held.Generation
	}
}

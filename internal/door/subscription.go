package door

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

// maxControl limits the body of a request about a subscription, in bytes. It is lower than maxBody, because a request
// with a wake's token is read before the token is checked.
const maxControl = 1 << 20

// subscriptionForm parses a path under reserved: a subscription, and a part of it.
var subscriptionForm = lazyregexp.New(`^__ds/subscriptions/([A-Za-z0-9._~-]{1,100})(?:/(streams|callback|claim|ack|release)(?:/(.+))?)?$`)

// control answers requests under reserved: requests about subscriptions, and for the key that signs webhook requests.
func (d *Door) control(w http.ResponseWriter, r *http.Request, name string) error {
	if d.Subscriptions == nil {
		return fault.New(fault.Unimplemented, "names that begin with "+reserved+" belong to the protocol, and this server has no subscriptions", "use another name")
	}
	if name == reserved+"jwks.json" && r.Method == http.MethodGet {
		return d.keys(w)
	}
	m := subscriptionForm.FindStringSubmatch(name)
	if m == nil {
		return fault.New(fault.NotFound, "there is nothing at this path", "subscriptions are under "+reserved+"subscriptions/")
	}
	c := control{Door: d, Request: r, w: w, name: m[1], path: m[3]}
	do, ok := controls[r.Method+" "+m[2]]
	if !ok || m[3] != "" && m[2] != "streams" {
		return refusal{http.StatusMethodNotAllowed, fault.New(fault.Unimplemented, "a subscription does not support this request", "the Durable Streams protocol lists the requests about subscriptions")}
	}
	switch m[2] {
	case "callback", "ack", "release": // the worker sends the wake's token
	default:
		action := auth.Write
		if r.Method == http.MethodGet {
			action = auth.Read
		}
		pass, err := d.Authorize(r, action, name)
		if err != nil {
			return err
		}
		c.house, c.who = pass.House, pass.who()
	}
	return do(c)
}

// control is a request about one subscription.
type control struct {
	*Door
	*http.Request
	w     http.ResponseWriter
	house string
	// who is the member of the house who makes the request; empty if it has a wake's token.
	who  string
	name string
	// path is the stream in the path, if there is one.
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

// wireLink is the JSON form of a stream of a subscription.
type wireLink struct {
	Path  string `json:"path"`
	Kind  string `json:"link_type"`
	Acked string `json:"acked_offset"`
}

// wireWebhook is the JSON form of a webhook, with how to verify its requests.
type wireWebhook struct {
	URL     string `json:"url"`
	Signing struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		KeysURL   string `json:"jwks_url"`
	} `json:"signing"`
}

// wireSubscription is the JSON form of a subscription.
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
	if err := resolveNames(spec.Streams); err != nil {
		return err
	}
	if spec.WakeStream != "" {
		name, err := streamName(spec.WakeStream)
		if err != nil {
			return err
		}
		spec.WakeStream = name
	}
	if _, thread := threadOf(spec.WakeStream); thread {
		return fault.New(fault.Invalid, "wake_stream: a thread cannot be a wake stream", "create a stream for the wakes")
	}
	sub, created, err := c.Subscriptions.Create(c.Context(), c.house, c.name, base(c.Request), spec)
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
	for _, p := range subscription.StreamStates(sub.Streams) {
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
	if err := resolveNames(body.Streams); err != nil {
		return err
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
		"streams": subscription.StreamStates(wake.Streams), "lease_ttl_ms": wake.LeaseMS,
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

// ack returns the report of a wake's holder, and its token.
func (c control) ack() (token string, ack subscription.Ack, err error) {
	token, cookie := auth.Credential(c.Header)
	if token == "" || cookie {
		return "", ack, fault.New(fault.Unauthenticated, "the wake's token is missing", "send it as a bearer token")
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
		name, err := streamName(a.Stream)
		if err != nil {
			return "", ack, err
		}
		ack.Acked[name] = max(ack.Acked[name], seq)
	}
	return token, ack, nil
}

// resolveNames replaces each reference to a stream in a request's body, by name or path, with the name.
func resolveNames(streams []string) error {
	for i, given := range streams {
		name, err := streamName(given)
		if err != nil {
			return err
		}
		streams[i] = name
	}
	return nil
}

func (c control) decode(to any) error {
	body, lease, err := c.content(c.w, request{Request: c.Request, member: c.who}, maxControl)
	if err != nil {
		return err
	}
	defer lease.Release()
	if err := json.Unmarshal(body, to); err != nil {
		return fault.New(fault.Invalid, "the body is not JSON of the expected form", "the Durable Streams protocol describes the bodies of requests about subscriptions").Because(err)
	}
	return nil
}

func (c control) answer(status int, body any) error {
	return answerJSON(c.w, "application/json", status, body)
}

// keys answers with the key that verifies the signatures of webhook requests.
func (d *Door) keys(w http.ResponseWriter) error {
	key := map[string]string{
		"kty": "OKP", "crv": "Ed25519", "kid": d.Subscriptions.KeyID(), "use": "sig", "alg": "EdDSA",
		"x": base64.RawURLEncoding.EncodeToString(d.Subscriptions.PublicKey()),
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	return answerJSON(w, "application/jwk-set+json", http.StatusOK, map[string]any{"keys": []any{key}})
}

func answerJSON(w http.ResponseWriter, kind string, status int, body any) error {
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
	w.Write(text) // fails only if the client is gone
	return nil
}

// protocolCode sets the protocol's code for an error about subscriptions, and its further fields.
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

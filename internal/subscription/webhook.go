package subscription

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// webhookTimeout is how long a webhook may take to answer before the delivery fails.
	webhookTimeout = 10 * time.Second
	// maxAnswer limits the bytes read of a webhook's response and of its header, because anybody may have written them.
	maxAnswer = 64 << 10
)

// StreamState is a [Link] as clients see it.
type StreamState struct {
	Path    string `json:"path"`
	Kind    string `json:"link_type"`
	Acked   string `json:"acked_offset"`
	Tail    string `json:"tail_offset"`
	Pending bool   `json:"has_pending"`
}

// StreamStates returns links as clients see them.
func StreamStates(links []Link) []StreamState {
	states := make([]StreamState, len(links))
	for i, l := range links {
		states[i] = StreamState{l.Stream, "glob", stream.Offset(l.Acked), stream.Offset(l.Tail), l.Tail > l.Acked}
		if l.Explicit {
			states[i].Kind = "explicit"
		}
	}
	return states
}

// webhookBody is the JSON body of a call to a webhook.
type webhookBody struct {
	Subscription string        `json:"subscription_id"`
	WakeID       string        `json:"wake_id"`
	Generation   int64         `json:"generation"`
	Streams      []StreamState `json:"streams"`
	CallbackURL  string        `json:"callback_url"`
	Token        string        `json:"callback_token"`
}

// call sends a wake to its webhook. A webhook that answers "done" has processed everything that the wake named.
func (s *Subscriptions) call(w query.BeginWakesRow, sub Subscription, held Wake) error {
	body, err := json.Marshal(webhookBody{sub.Name, held.ID, held.Generation, StreamStates(held.Streams), sub.BaseURL + "__ds/subscriptions/" + sub.Name + "/callback", held.Token})
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
		return fault.New(fault.Unavailable, "the webhook cannot be reached", "check its URL, and that it accepts connections").Because(err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fault.Newf(fault.Unavailable, "check the webhook's log", "the webhook answered with status %d", res.StatusCode)
	}
	var answer struct{ Done bool }
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || json.Unmarshal(text, &answer) != nil || !answer.Done {
		return nil // the webhook will call back, or the lease will end
	}
	if _, err = s.Acknowledge(s.ctx, sub.Name, held.Token, Ack{held.ID, held.Generation, held.tails(), true}); fault.CodeOf(err) == fault.Aborted {
		return nil // a callback has already ended the wake
	}
	return err
}

// tails returns the ends of the streams that the wake names.
func (w Wake) tails() map[string]int64 {
	tails := map[string]int64{}
	for _, l := range w.Streams {
		tails[l.Stream] = l.Tail
	}
	return tails
}

// sign returns the signature of a body that is sent now. It covers the time, so that a receiver can refuse an old
// request that somebody repeats.
func (s *Subscriptions) sign(now time.Time, body []byte) string {
	signed := fmt.Appendf(nil, "%d.%s", now.Unix(), body)
	return fmt.Sprintf("t=%d,kid=%s,ed25519=%s", now.Unix(), s.KeyID(), base64.RawURLEncoding.EncodeToString(ed25519.Sign(s.Key, signed)))
}

// PublicKey is the key that verifies signatures.
func (s *Subscriptions) PublicKey() ed25519.PublicKey { return s.Key.Public().(ed25519.PublicKey) }

// KeyID returns the id of the key. It is derived from the key, so that all servers of a database have the same one.
func (s *Subscriptions) KeyID() string {
	sum := sha256.Sum256(s.PublicKey())
	return "ds_" + base64.RawURLEncoding.EncodeToString(sum[:9])
}

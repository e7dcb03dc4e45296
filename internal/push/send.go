package push

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/SherClockHolmes/webpush-go"
)

const (
	// keepFor is how long a push service keeps a notification for a device that is off.
	keepFor = 24 * time.Hour
	// The pause after a failure doubles with each further failure, from minPause to maxPause.
	minPause, maxPause = 30 * time.Second, time.Hour
)

// refusedError says that a push service did not take a notification.
type refusedError struct {
	status int
	// gone reports that the push service will never take one for this device.
	gone bool
	// after is the pause that the push service asked for; 0 if it did not.
	after time.Duration
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the push service answered with status %d", e.status)
}

// Notification is a notification for a device, as JSON for its service worker (web/script/sw.js).
type Notification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	// URL is the path of the page that a click opens.
	URL string `json:"url"`
	// Tag names the subject. A notification replaces an earlier one with the same tag.
	Tag string `json:"tag"`
}

// send sends a notification to a device, sealed so that only the device can read it.
func (p *Pusher) send(ctx context.Context, to Address, n Notification) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	res, err := webpush.SendNotificationWithContext(ctx, text, &webpush.Subscription{Endpoint: to.Endpoint, Keys: webpush.Keys{Auth: to.Auth, P256dh: to.P256dh}}, &webpush.Options{
		HTTPClient: p.client, Subscriber: p.subscriber(), TTL: int(keepFor.Seconds()), Urgency: webpush.UrgencyHigh,
		VAPIDPublicKey: p.PublicKey(), VAPIDPrivateKey: base64.RawURLEncoding.EncodeToString(p.vapid.Bytes()),
	})
	if err != nil {
		// The client's error contains the URL, which is a secret of the device.
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("the push service cannot be reached: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection can be reused
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusGone, http.StatusForbidden:
		// The browser has unsubscribed, or subscribed with another key of the server.
		return &refusedError{status: res.StatusCode, gone: true}
	}
	if res.StatusCode/100 != 2 {
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return &refusedError{status: res.StatusCode, after: time.Duration(min(max(seconds, 0), int(maxPause.Seconds()))) * time.Second}
	}
	return nil
}

// subscriber returns the contact of the server's operator for push services.
func (p *Pusher) subscriber() string {
	if strings.HasPrefix(p.URL, "https:") {
		return p.URL
	}
	return cmp.Or(p.Mail.From, "nobody@localhost")
}

// backOff returns the pause after a number of failures in a row.
func backOff(failures int, err error) time.Duration {
	pause := min(minPause<<min(failures, 10), maxPause)
	if refused, ok := errors.AsType[*refusedError](err); ok {
		pause = max(pause, refused.after)
	}
	return pause
}

//go:build go1.25

package arbe_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
)

// On a real clock, the time for the bot to begin may pass before the first connection has ended.
func TestAskEndsWhenTheServerIsGoneForTooLong(t *testing.T) {
	onFakeClock(t, func(t *testing.T) {
		broken := &answeringServer{ends: func() error { return connect.NewError(connect.CodeUnavailable, errors.New("stopping")) }}
		c := arbe.New("http://memory", "", arbe.WithHTTPClient(&http.Client{Transport: memory{broken.handler()}}))
		_, answer, err := askedBy(t, c, arbe.Question{Thread: "thread", ID: "q", Text: "?", Patience: time.Minute})
		if lost := (*arbe.LostError)(nil); !errors.As(err, &lost) || connect.CodeOf(lost.Err) != connect.CodeUnavailable || answer != nil {
			t.Errorf("it ended with %+v, %v, want a LostError", answer, err)
		}
	})
}

package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/model"
)

// TestTheCostOfTheGateway measures how much later the first byte of an answer arrives through the gateway than directly
// from the provider, asking both in turn. It is a benchmark that compares: it prints figures with -v, and fails only if
// one is far off.
func TestTheCostOfTheGateway(t *testing.T) {
	b := setup(t, options{provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n")
		w.(http.Flusher).Flush()
		io.WriteString(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	})})
	stop := b.auth.Listen() // as a server does
	defer stop()
	m, err := b.models.Models(t.Context(), b.house)
	must(t, err)
	direct := m.Found[0].Endpoint.BaseURL
	_, short := request(model.Messages, "anthropic/claude-x", "hello")
	_, long := request(model.Messages, "anthropic/claude-x", strings.Repeat("hello ", 200<<10/6))
	first := func(url, body string) time.Duration {
		r, err := http.NewRequestWithContext(context.Background(), "POST", url+"/v1/messages", bytes.NewReader([]byte(body)))
		must(t, err)
		r.Header.Set("X-Api-Key", b.token)
		began := time.Now()
		res, err := http.DefaultTransport.RoundTrip(r)
		must(t, err)
		defer res.Body.Close()
		if _, err := res.Body.Read(make([]byte, 1)); err != nil || res.StatusCode != 200 {
			t.Fatal(res.Status, err)
		}
		took := time.Since(began)
		_, _ = io.Copy(io.Discard, res.Body)
		return took
	}
	for name, body := range map[string]string{"a short request": short, "one of 200 KiB": long} {
		var alone, through []time.Duration
		for i := range 220 {
			d, g := first(direct, body), first(b.url+"/api/model/anthropic", body)
			if i >= 20 {
				alone, through = append(alone, d), append(through, g)
			}
		}
		slices.Sort(alone)
		slices.Sort(through)
		more := through[len(through)/2] - alone[len(alone)/2]
		t.Logf("%s: first byte directly %s, through the gateway %s (median; p95 %s and %s): %s more", name,
			alone[len(alone)/2], through[len(through)/2], alone[len(alone)*95/100], through[len(through)*95/100], more)
		if more > 50*time.Millisecond {
			t.Errorf("%s: the first byte comes %s later", name, more)
		}
	}
}

package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/model"
)

// BenchmarkFirstByte asks the provider directly and through the gateway in turn, and reports the medians of the time to the
// first byte of an answer, in milliseconds, and their difference.
func BenchmarkFirstByte(b *testing.B) {
	w := setup(b, options{provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n")
		w.(http.Flusher).Flush()
		io.WriteString(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	})})
	stop := w.auth.Listen() // as a server does
	defer stop()
	m, err := w.models.Models(b.Context(), w.house)
	must(b, err)
	direct := m.Found[0].Endpoint.BaseURL
	first := func(b *testing.B, url, body string) time.Duration {
		r, err := http.NewRequestWithContext(b.Context(), "POST", url+"/v1/messages", bytes.NewReader([]byte(body)))
		must(b, err)
		r.Header.Set("X-Api-Key", w.token)
		began := time.Now()
		res, err := http.DefaultTransport.RoundTrip(r)
		must(b, err)
		defer res.Body.Close()
		if _, err := res.Body.Read(make([]byte, 1)); err != nil || res.StatusCode != 200 {
			b.Fatal(res.Status, err)
		}
		took := time.Since(began)
		_, _ = io.Copy(io.Discard, res.Body)
		return took
	}
	for name, size := range map[string]int{"short": 5, "200KiB": 200 << 10} {
		_, body := request(model.Messages, "anthropic/claude-x", strings.Repeat("hello ", size/5))
		b.Run(name, func(b *testing.B) {
			var alone, through []time.Duration
			for b.Loop() {
				alone = append(alone, first(b, direct, body))
				through = append(through, first(b, w.url+"/api/model/anthropic", body))
			}
			slices.Sort(alone)
			slices.Sort(through)
			a, t := alone[len(alone)/2], through[len(through)/2]
			for unit, of := range map[string]time.Duration{"direct-ms": a, "gateway-ms": t, "more-ms": t - a} {
				b.ReportMetric(float64(of.Microseconds())/1000, unit)
			}
		})
	}
}

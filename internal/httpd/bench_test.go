package httpd_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/httpd"
)

// BenchmarkRequest measures a small request with a body, with limits and without.
func BenchmarkRequest(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	for name, server := range map[string]*http.Server{
		"limited": httpd.New(handler, httpd.Limits{}, slog.New(slog.DiscardHandler)),
		"bare":    {Handler: handler, Protocols: httpd.New(handler, httpd.Limits{}, slog.New(slog.DiscardHandler)).Protocols},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		go server.Serve(listener)
		b.Cleanup(func() { server.Close() })
		for version, protocol := range map[string]func(*http.Protocols){
			"HTTP1": func(p *http.Protocols) { p.SetHTTP1(true) },
			"HTTP2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		} {
			b.Run(name+"/"+version, func(b *testing.B) {
				client := &http.Transport{Protocols: new(http.Protocols)}
				protocol(client.Protocols)
				b.Cleanup(client.CloseIdleConnections)
				for b.Loop() {
					req, _ := http.NewRequest("POST", "http://"+listener.Addr().String(), strings.NewReader("hello"))
					req.Header.Set("Authorization", "Bearer key")
					res, err := client.RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					res.Body.Close()
				}
			})
		}
	}
}

// Package web is arbe in a browser: pages rendered on the server, kept live by Datastar over SSE.
//
// It is a client of the services like any other. Everything it shows and does goes through the generated
// Connect clients (services.go), in-process, in the name of the person whose session the request carries;
// so whatever a person can do here a program can do too, and what they may do is decided behind the
// services, never here.
//
// Layout: one page is <page>.go with <page>.templ. A request goes from the table below to a handler that
// returns an error; [app.page] turns a fault into the one error page (fail.go). An entry becomes HTML in
// kinds.go, one function per kind; log.go arranges entries into rows, the same way for a page (thread.go),
// for older entries (entries.go) and for the live tail (tail.go).
//
// The rules to remember: a page is complete and useful without a script; what people wrote reaches HTML
// only through templ's escaping, the Markdown sanitizer or the terminal renderer, and never a Datastar
// expression; and a live event must be harmless when it comes twice (tail.go says how).
package web

import (
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
)

// maxForm bounds a request's body, in bytes: the longest chat text, as a form writes it at worst.
const maxForm = 4 << 20

// Config is what the web app needs.
type Config struct {
	// HTTPClient carries the calls to the services, in memory when they are in this process.
	HTTPClient connect.HTTPClient
	// BaseURL is the services' address in HTTPClient's terms.
	BaseURL string
	// Log takes what people must not see of a failure. Defaults to [slog.Default].
	Log *slog.Logger
}

type app struct {
	services services
	log      *slog.Logger
}

// New returns the web app. It serves every path it is given; mount it at "/".
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	a := &app{services: dial(c.HTTPClient, c.BaseURL), log: c.Log}
	mux := http.NewServeMux()

	mux.Handle("GET /{$}", a.page(a.home))
	mux.Handle("GET /login", a.open(a.login))
	mux.Handle("POST /logout", a.page(a.logout))
	mux.Handle("POST /theme", a.open(a.theme))

	mux.Handle("GET /houses/{house}", a.page(a.house))
	mux.Handle("GET /houses/{house}/tail", a.page(a.houseTail))
	mux.Handle("POST /houses/{house}/threads", a.page(a.startThread))

	mux.Handle("GET /threads/{thread}", a.page(a.thread))
	mux.Handle("POST /threads/{thread}", a.page(a.changeThread))
	mux.Handle("POST /threads/{thread}/delete", a.page(a.deleteThread))
	mux.Handle("GET /threads/{thread}/tail", a.page(a.threadTail))
	mux.Handle("GET /threads/{thread}/entries", a.page(a.entries))
	mux.Handle("POST /threads/{thread}/entries", a.page(a.say))
	mux.Handle("GET /threads/{thread}/entries/{seq}", a.page(a.entry))
	mux.Handle("GET /threads/{thread}/entries/{seq}/raw", a.page(a.entryRaw))
	mux.Handle("POST /threads/{thread}/entries/{seq}/fork", a.page(a.forkThread))
	mux.Handle("POST /threads/{thread}/commands/{command}/cancel", a.page(a.cancelCommand))

	mux.Handle("GET /static/{name}", static)
	mux.Handle("/", a.open(a.nowhere))

	return http.NewCrossOriginProtection().Handler(hardened(mux))
}

// hardened bounds what a request may send and what a page may do.
func hardened(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		// Datastar compiles attribute expressions: that is what 'unsafe-eval' is for, and why no
		// expression ever holds what people wrote.
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

package port

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// style is the style sheet of the pages.
const style = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto 0;padding:0 1.5rem}h1{font-size:1.3rem}p{margin:.6rem 0}`

// pagePolicy is the Content-Security-Policy of the pages, which run no scripts.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
}()

// page is the content of a page. It does not use html/template, which calls methods by name: the linker would then keep every
// exported method of every package in the program.
type page struct {
	title, next    string
	link, linkText string
	retry          int // the seconds between two tries; 0 for never
}

func (p page) String() string {
	var head, body strings.Builder
	title := html.EscapeString(p.title)
	fmt.Fprintf(&body, "<h1>%s</h1>", title)
	if p.next != "" {
		fmt.Fprintf(&body, "<p>%s</p>", html.EscapeString(p.next))
	}
	if p.retry > 0 {
		fmt.Fprintf(&head, `<meta http-equiv="refresh" content="%d">`, p.retry)
		fmt.Fprintf(&body, "<p>This page tries again every %d seconds.</p>", p.retry)
	}
	if p.link != "" {
		fmt.Fprintf(&body, `<p><a href="%s">%s</a></p>`, html.EscapeString(p.link), html.EscapeString(p.linkText))
	}
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>` + title + `</title>` +
		head.String() + `<style>` + style + `</style></head><body><main>` + body.String() + `</main></body></html>`
}

// retryEvery is how often a page tries again, in seconds.
const retryEvery = 2

// fail answers with an error: a page for a person, and JSON for everyone else. link is the address where the preview can be
// opened.
func (p *Ports) fail(w http.ResponseWriter, r *http.Request, err error, link string) {
	f := fault.From(err)
	if f.Code == fault.Internal {
		p.Logger.ErrorContext(r.Context(), "a preview failed", "reference", f.Reference, "error", f.Detail())
	}
	h := w.Header()
	clear(h)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	if !isPage(r) {
		fault.Answer(w, r, f.Code.HTTPStatus(), f.Code, f.BodyFor(r))
		return
	}
	shown := page{title: sentence(f.Message), next: sentence(f.Next), link: link, linkText: "Open it from the thread"}
	if f.Reason() == fault.NoSandbox {
		shown.linkText = "Start it from the thread"
	}
	if (f.Reason() == fault.NobodyListens || f.Code == fault.Unavailable) && r.Method == http.MethodGet {
		shown.retry = retryEvery
		h.Set("Retry-After", strconv.Itoa(retryEvery))
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(f.Code.HTTPStatus())
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, shown.String()) // fails only if the reader has left
	}
}

// sentence makes a message a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// isPage reports whether a browser will show the response to a request as a page.
func isPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "document", "iframe", "frame":
		return true
	case "":
		return strings.Contains(r.Header.Get("Accept"), "text/html")
	}
	return false
}

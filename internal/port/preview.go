package port

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// openPath is the path, on a preview's host, that exchanges a ticket for a pass. Requests for it never reach the program in
// the sandbox.
const openPath = "/.arbe/open"

const (
	// maxOfPreview limits the connections of one preview at one time. Further requests wait.
	maxOfPreview = 64
	// answerWithin is how long a program may take to begin its answer.
	answerWithin = 10 * time.Minute
)

// OpenPreview returns the address at which a browser can open a preview of a port of the thread's sandbox, in the name of the
// context's principal. The caller has checked that the principal may run commands there. The address expires soon.
func (p *Ports) OpenPreview(ctx context.Context, thread string, port uint16) (address string, expires time.Time, err error) {
	if p.Previews == nil {
		return "", time.Time{}, fault.New(fault.Precondition, "this server has no previews", "use arbe port, or ask the operator to set preview_url")
	}
	who, err := auth.PrincipalFrom(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	text, expires, err := p.sign(ticket, claims{Thread: thread, Port: port, Mark: who.Mark(), RegisteredClaims: jwt.RegisteredClaims{ID: rand.Text()}}, ticketFor)
	return p.origin(p.label(thread, port)) + openPath + "?" + url.Values{"ticket": {text}}.Encode(), expires, err
}

// origin returns the origin of the preview with a label.
func (p *Ports) origin(label string) string {
	return p.Previews.Scheme + "://" + label + "." + p.Previews.Host
}

// labelForm matches labels.
var labelForm = lazyregexp.New(`^[a-z2-7]{16}$`)

// Serves reports whether a request is for the host of a preview, and returns its label.
func (p *Ports) Serves(r *http.Request) (label string, ok bool) {
	if p.Previews == nil {
		return "", false
	}
	label, rest, found := strings.Cut(strings.ToLower(r.Host), ".")
	return label, found && labelForm.MatchString(label) && strings.TrimSuffix(rest, defaultPort(p.Previews.Scheme)) == strings.TrimSuffix(strings.ToLower(p.Previews.Host), defaultPort(p.Previews.Scheme))
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return ":443"
	}
	return ":80"
}

// Preview serves the hosts of previews. The pages of a preview are untrusted. Each preview has its own origin, so that the
// browser separates it from the house's pages and from other previews. This handler keeps the house's cookies from the
// program, and the program from setting them.
func (p *Ports) Preview() http.Handler {
	proxy := p.proxy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		label, _ := p.Serves(r)
		if r.URL.Path == openPath {
			p.open(w, r, label)
			return
		}
		c, err := p.passOf(r, label)
		if err != nil {
			p.fail(w, r, err, p.linkTo(c))
			return
		}
		if !p.fromItself(r, label) {
			p.fail(w, r, fault.New(fault.Forbidden, "pages of other hosts may not use this preview", "open it by itself"), "")
			return
		}
		ctx, scope, done, err := p.admit(r.Context(), c)
		if err != nil {
			p.fail(w, r, err, p.linkTo(c))
			return
		}
		defer done()
		clear(w.Header()) // the policies of the server's other doors
		proxy.ServeHTTP(final{w}, r.WithContext(context.WithValue(ctx, visitKey{}, visit{scope, c, label})))
	})
}

// proxy returns the proxy to the programs of previews.
func (p *Ports) proxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.confine, FlushInterval: -1,
		Transport: &http.Transport{
			DialContext: p.dialPreview, DisableCompression: true, MaxConnsPerHost: maxOfPreview, MaxIdleConnsPerHost: 8, IdleConnTimeout: 20 * time.Second,
			ResponseHeaderTimeout: answerWithin, MaxResponseHeaderBytes: 256 << 10,
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			err = unanswered(err)
			link := ""
			if fault.From(err).Reason() == fault.NoSandbox { // a preview starts nothing
				link = p.linkTo(visitOf(r.Context()).claims) + "&start=yes"
			}
			p.fail(w, r, err, link)
		},
		ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
	}
}

// final passes on the final response without informational ones (1xx), such as early hints. The proxy would copy the
// headers of those unchanged, and confine would not see them.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets an [http.ResponseController] flush and hijack the connection.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// visit is a request for a preview by someone who may see it.
type visit struct {
	scope db.Scope
	claims
	label string
}

type visitKey struct{}

func visitOf(ctx context.Context) visit {
	v, _ := ctx.Value(visitKey{}).(visit)
	return v
}

// open exchanges a ticket for a pass, once. A browser that has the pass may open the address again.
func (p *Ports) open(w http.ResponseWriter, r *http.Request, label string) {
	if r.Method != http.MethodGet {
		p.fail(w, r, fault.New(fault.Invalid, "this is the address of a preview", "open it in a browser"), "")
		return
	}
	c, err := p.verify(ticket, r.URL.Query().Get("ticket"), label)
	if err == nil {
		var first bool
		if first, err = p.Auth.UseOnce(r.Context(), c.ID, c.ExpiresAt.Time); err == nil && !first {
			if _, failed := p.passOf(r, label); failed == nil {
				http.Redirect(w, r, "/", http.StatusSeeOther)
				return
			}
			err = fault.New(fault.Unauthenticated, "the address of this preview was already opened", "open the preview from the page of its thread")
		}
	}
	if err != nil {
		p.fail(w, r, err, p.linkTo(c))
		return
	}
	text, _, err := p.sign(pass, c, passFor)
	if err != nil {
		p.fail(w, r, err, "")
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	http.SetCookie(w, p.passCookie(text))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// passOf returns the claims of a request's pass.
func (p *Ports) passOf(r *http.Request, label string) (claims, error) {
	cookie, err := r.Cookie(p.cookieName())
	if err != nil {
		return claims{}, notOpened()
	}
	return p.verify(pass, cookie.Value, label)
}

// linkTo returns the address of the page that opens a preview; without claims, that of the house's first page.
func (p *Ports) linkTo(c claims) string {
	if c.Thread == "" {
		return p.House + "/"
	}
	return p.House + "/threads/" + url.PathEscape(c.Thread) + "/preview?port=" + strconv.Itoa(int(c.Port))
}

// admit checks that the person who opened a preview may still see it. The returned context ends when they no longer
// may.
func (p *Ports) admit(ctx context.Context, c claims) (_ context.Context, scope db.Scope, done context.CancelFunc, err error) {
	who, err := p.Auth.Marked(ctx, c.Mark)
	if err != nil {
		return nil, scope, nil, err
	}
	ctx = who.With(ctx)
	if scope, err = p.Auth.Authorize(ctx, auth.Write, auth.Thread(c.Thread)); err != nil {
		return nil, scope, nil, err
	}
	ctx, done = p.Auth.While(ctx, auth.Write, auth.Thread(c.Thread))
	return ctx, scope, done, nil
}

// fromItself reports whether a request comes from the preview's own pages, or opens the preview as a top-level page. The
// pass alone does not prove this, because browsers may also send cookies with requests of other hosts' pages.
func (p *Ports) fromItself(r *http.Request, label string) bool {
	origin, own := r.Header.Get("Origin"), p.origin(label)
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return origin == "" || origin == own
	case "": // an old browser, an address that browsers do not trust, or no browser
		return origin == "" && r.Header.Get("Upgrade") == "" || origin == own
	}
	opens := r.Method == http.MethodGet || r.Method == http.MethodHead
	return opens && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// dialPreview connects for the transport. It ignores the address, which only separates the transport's connections; see
// rewrite.
func (p *Ports) dialPreview(ctx context.Context, _, _ string) (net.Conn, error) {
	v := visitOf(ctx)
	return p.dial(ctx, v.scope, v.Thread, v.Port)
}

// rewrite turns a request for a preview into a request to the program that seems to come from the program's own machine,
// because development servers answer only such requests.
func (p *Ports) rewrite(r *httputil.ProxyRequest) {
	v := visitOf(r.In.Context())
	local := "localhost:" + strconv.Itoa(int(v.Port))
	// The transport pools its connections by this host, which is never resolved.
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", v.label+":"+strconv.Itoa(int(v.Port)), local
	h, own := r.Out.Header, p.origin(v.label)
	if h.Get("Origin") == own {
		h.Set("Origin", "http://"+local)
	}
	if rest, found := strings.CutPrefix(h.Get("Referer"), own); found {
		h.Set("Referer", "http://"+local+rest)
	} else {
		h.Del("Referer") // an address of the house, or of another site
	}
	if _, set := h["User-Agent"]; !set {
		h["User-Agent"] = nil // otherwise the transport names itself
	}
	h.Del("X-Real-Ip")
	keepCookies(h)
}

// keepCookies removes the house's own cookies.
func keepCookies(h http.Header) {
	cookies := h.Values("Cookie")
	h.Del("Cookie")
	var kept []string
	for _, line := range cookies {
		for cookie := range strings.SplitSeq(line, ";") {
			cookie = strings.TrimSpace(cookie)
			if name, _, _ := strings.Cut(cookie, "="); cookie != "" && !ours(strings.TrimSpace(name)) {
				kept = append(kept, cookie)
			}
		}
	}
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

// outward lists the response headers that would affect other origins, or open the preview's origin to others.
var outward = []string{
	"Clear-Site-Data", // it would log the reader out of the house if both share a domain
	"Strict-Transport-Security", "Public-Key-Pins", "Alt-Svc",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
}

// confine limits the effects of a program's response to the preview's origin.
func (p *Ports) confine(res *http.Response) error {
	v, h := visitOf(res.Request.Context()), res.Header
	for _, name := range outward {
		h.Del(name)
	}
	set := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range set {
		if c, err := http.ParseSetCookie(line); err == nil && !ours(c.Name) {
			h.Add("Set-Cookie", withoutDomain(line))
		}
	}
	if at, err := url.Parse(h.Get("Location")); err == nil && isLocal(at, v.Port) {
		own, _ := url.Parse(p.origin(v.label))
		at.Scheme, at.Host = own.Scheme, own.Host
		h.Set("Location", at.String())
	}
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Add("Content-Security-Policy", "frame-ancestors 'self'")
	h.Set("Origin-Agent-Cluster", "?1")
	if h.Get("Cross-Origin-Opener-Policy") == "" {
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	h.Add("Cache-Control", "private")
	return nil
}

// withoutDomain removes the attribute Domain from a cookie, so that the cookie belongs to one host only.
func withoutDomain(line string) string {
	parts := strings.Split(line, ";")
	kept := parts[:1]
	for _, part := range parts[1:] {
		if name, _, _ := strings.Cut(part, "="); !strings.EqualFold(strings.TrimSpace(name), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";")
}

// isLocal reports whether an address is the program's own: a loopback address with its port.
func isLocal(at *url.URL, port uint16) bool {
	if at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return false
	}
	switch at.Hostname() {
	case "localhost", "127.0.0.1", "0.0.0.0", "::1":
		return at.Port() == strconv.Itoa(int(port)) || at.Port() == "" && port == 80
	}
	return false
}

// unanswered returns the error for a request that the program did not answer.
func unanswered(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unavailable, "the program in the sandbox did not answer", "look at its output").Because(err)
}

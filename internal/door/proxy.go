package door

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// answerWithin limits how long the server may take to begin an answer. It is longer than any long-poll, because the
// answer to one without entries begins only at its end.
const answerWithin = 5 * time.Minute

// modelPrefix is the path prefix of the gateway to models, and maxModelBody the largest body of a request for one, in bytes.
const (
	modelPrefix  = "/api/model/"
	maxModelBody = 32 << 20
)

// gitPrefix is the path prefix of the door for git, and maxGitBody the largest body of a request of git, in bytes. The server
// decides how much of it it takes.
const (
	gitPrefix  = "/git/"
	maxGitBody = 8 << 30
)

// proxyPath returns the path at which a request for a stream, a model or git is forwarded, and how large its body may be.
func proxyPath(r *http.Request) (path string, most int64, err error) {
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), gitPrefix); ok {
		return gitPrefix + rest, maxGitBody, checkName(rest)
	}
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), modelPrefix); ok {
		return modelPrefix + rest, maxModelBody, checkName(rest)
	}
	name, err := pathName(r.URL.EscapedPath())
	return prefixOf(r) + name, maxBody, err
}

// Proxy forwards requests for streams, models and git to the server at upstream, for sandboxes whose network does not reach
// it. It forwards the method, query, body and Authorization unchanged, and returns answers as they are written. It
// holds no secret: the server decides who may do what. It forwards only to the streams, the models and the door for git of upstream: it
// builds the path from what it has checked, follows no redirects, drops cookies, and allows no protocol upgrade. It
// answers every other path with "not found".
func Proxy(upstream *url.URL, logger *slog.Logger) http.Handler {
	p := proxy{upstream: upstream, logger: logger}
	p.forward = &httputil.ReverseProxy{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  answerWithin,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true, // forward the bytes unchanged
			ForceAttemptHTTP2:      true,
		},
		Rewrite:        p.rewrite,
		ModifyResponse: p.modify,
		FlushInterval:  -1, // live events must not be delayed
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ErrorHandler:   p.fail,
	}
	return p
}

// proxy is the handler of [Proxy].
type proxy struct {
	upstream *url.URL
	forward  *httputil.ReverseProxy
	logger   *slog.Logger
}

// base is the path of the server, without a slash at its end.
func (p proxy) base() string { return strings.TrimSuffix(p.upstream.Path, "/") }

func (p proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, most, err := proxyPath(r)
	switch {
	case err != nil:
		refuseProxied(w, r, http.StatusNotFound, fault.New(fault.NotFound, "this proxy forwards only requests for streams, models and git", "use a path under "+Prefixes[0]+", "+modelPrefix+" or "+gitPrefix))
	case !slices.Contains(strings.Split(methods, ", "), r.Method):
		w.Header().Set("Allow", methods)
		refuseProxied(w, r, http.StatusMethodNotAllowed, fault.New(fault.Unimplemented, "this proxy does not forward such a request", "use one of "+methods))
	case r.ContentLength > most:
		refuseProxied(w, r, http.StatusRequestEntityTooLarge, tooLarge(most))
	default:
		r.Body = http.MaxBytesReader(w, r.Body, most)
		// Otherwise the first byte of a fast answer closes the request's body before the transport has seen its end, and the
		// transport then cuts the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
		p.forward.ServeHTTP(w, r)
	}
}

// rewrite addresses a request to the server.
func (p proxy) rewrite(r *httputil.ProxyRequest) {
	path, _, _ := proxyPath(r.In) // already validated
	r.Out.URL = &url.URL{Scheme: p.upstream.Scheme, Host: p.upstream.Host, Path: p.base() + path, RawQuery: r.Out.URL.RawQuery}
	r.Out.Host = p.upstream.Host
	// After an upgrade, both sides could bypass the checks of this proxy.
	for _, name := range []string{"Cookie", "Connection", "Upgrade"} {
		r.Out.Header.Del(name)
	}
}

// modify removes headers from an answer that a sandbox must not get.
func (p proxy) modify(r *http.Response) error {
	// A redirect is not passed on, because it may lead away from the streams.
	if to := r.Header.Get("Location"); r.StatusCode/100 == 1 || r.StatusCode/100 == 3 && r.StatusCode != http.StatusNotModified {
		return errors.New("it answers " + r.Status + " to " + to + ": set --upstream to where the server is")
	}
	r.Header.Del("Set-Cookie")
	if path := strings.TrimPrefix(r.Request.URL.Path, p.base()); strings.HasPrefix(path, modelPrefix) || strings.HasPrefix(path, gitPrefix) {
		return nil // it has the headers of its door
	}
	// Keep these headers of the server. prepare adds those that every response has for browsers.
	caching, vary := r.Header["Cache-Control"], r.Header["Vary"]
	prepare(r.Header)
	if caching != nil {
		r.Header["Cache-Control"] = caching
	}
	if vary != nil {
		r.Header["Vary"] = vary
	}
	return nil
}

// fail answers a request that could not be forwarded.
func (p proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuseProxied(w, r, http.StatusRequestEntityTooLarge, tooLarge(large.Limit))
		return
	}
	p.logger.WarnContext(r.Context(), "the server behind the proxy cannot be reached", "upstream", p.upstream.Host, "error", err)
	refuseProxied(w, r, http.StatusBadGateway, fault.New(fault.Unavailable, "the server behind this proxy cannot be reached",
		"try again in a moment; no acknowledged data is lost"))
}

// refuseProxied answers a request with an error of the proxy itself.
func refuseProxied(w http.ResponseWriter, r *http.Request, status int, f *fault.Error) {
	refuse(w, r, status, failure{Body: f.BodyFor(r)})
}

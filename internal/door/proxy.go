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

// Proxy forwards requests for streams to the server at upstream, for sandboxes whose network does not reach it. It
// forwards the method, query, body and Authorization unchanged, and returns answers as they are written. It holds no
// secret: the server decides who may do what. It forwards only to the streams of upstream: it builds the path from the
// stream's name, follows no redirects, drops cookies, and allows no protocol upgrade. Every other path is not found.
func Proxy(upstream *url.URL, logger *slog.Logger) http.Handler {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  answerWithin,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        time.Minute,
		DisableCompression:     true, // forward the bytes unchanged
		ForceAttemptHTTP2:      true,
	}
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			name, _ := pathName(r.In.URL.EscapedPath()) // already validated
			r.Out.URL = &url.URL{
				Scheme: upstream.Scheme, Host: upstream.Host,
				Path: strings.TrimSuffix(upstream.Path, "/") + prefixOf(r.In) + name, RawQuery: r.Out.URL.RawQuery,
			}
			r.Out.Host = upstream.Host
			// With an upgrade, both sides would talk past the checks of this proxy.
			for _, name := range []string{"Cookie", "Connection", "Upgrade"} {
				r.Out.Header.Del(name)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			// Not passed on, because a redirect may lead away from the streams.
			if to := r.Header.Get("Location"); r.StatusCode/100 == 1 || r.StatusCode/100 == 3 && r.StatusCode != http.StatusNotModified {
				return errors.New("it answers " + r.Status + " to " + to + ": set --upstream to where the server is")
			}
			r.Header.Del("Set-Cookie")
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
		},
		FlushInterval: -1, // live events must not be delayed
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
				refuseProxied(w, r, http.StatusRequestEntityTooLarge, tooLarge(large.Limit))
				return
			}
			logger.WarnContext(r.Context(), "the server behind the proxy cannot be reached", "upstream", upstream.Host, "error", err)
			refuseProxied(w, r, http.StatusBadGateway, fault.New(fault.Unavailable, "the server behind this proxy cannot be reached",
				"try again in a moment; no acknowledged data is lost"))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := pathName(r.URL.EscapedPath())
		switch {
		case err != nil:
			refuseProxied(w, r, http.StatusNotFound, fault.New(fault.NotFound, "this proxy forwards streams only", "use a path under "+Prefixes[0]))
		case !slices.Contains(strings.Split(methods, ", "), r.Method):
			w.Header().Set("Allow", methods)
			refuseProxied(w, r, http.StatusMethodNotAllowed, fault.New(fault.Unimplemented, "this proxy does not forward such a request", "use one of "+methods))
		case r.ContentLength > maxBody:
			refuseProxied(w, r, http.StatusRequestEntityTooLarge, tooLarge(maxBody))
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			forward.ServeHTTP(w, r)
		}
	})
}

// refuseProxied answers a request with an error of the proxy itself.
func refuseProxied(w http.ResponseWriter, r *http.Request, status int, f *fault.Error) {
	refuse(w, r, status, failure{Body: f.Body()})
}

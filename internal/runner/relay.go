package runner

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// relay forwards the agent's model calls to the gateway with the run's current token. The agent has no token, so none
// of its tools can reveal it, and a run may outlast a token. Nothing is buffered.
type relay struct {
	// url is the base URL for the agent. key is the key that it must send, so other users of the machine cannot use
	// the relay.
	url, key string
}

// The headers in which clients send a key.
var keyHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"}

// startRelay starts a relay to a base URL, on a loopback address.
func startRelay(base string, d *door) (*relay, error) {
	to, err := url.Parse(base)
	if err != nil || to.Host == "" {
		return nil, fmt.Errorf("model: base_url is not a URL")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	key := rand.Text()
	proxy := relayProxy(to, d)
	s := &http.Server{ReadHeaderTimeout: 30 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sent(r.Header, key) {
			http.Error(w, "arbe-runner: this relay is for the agent of a run only", http.StatusUnauthorized)
			return
		}
		// Without this, the server closes the request's body at the first byte of the response. The transport could
		// not read the body to its end, and would close the connection in the middle of the response.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})}
	go s.Serve(listener) //nolint:errcheck // it ends with the program
	return &relay{url: "http://" + listener.Addr().String(), key: key}, nil
}

// relayProxy passes requests on to a base URL, with the run's token as their key.
func relayProxy(to *url.URL, d *door) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{FlushInterval: -1,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
			// The timeout is for agents that would wait for headers without limit.
			ResponseHeaderTimeout: 10 * time.Minute, MaxIdleConnsPerHost: 8, DisableCompression: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = to.Host
			for _, name := range keyHeaders {
				if r.In.Header.Get(name) != "" {
					r.Out.Header.Set(name, d.current())
				}
			}
			r.Out.Header.Set("Authorization", "Bearer "+d.current())
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "arbe-runner: the model gateway cannot be reached: "+err.Error(), http.StatusBadGateway)
		}}
}

func sent(h http.Header, key string) bool {
	for _, name := range keyHeaders {
		if strings.TrimPrefix(h.Get(name), "Bearer ") == key {
			return true
		}
	}
	return false
}

// Package gitdoor lets git in sandboxes use repositories that need a password or a token, without the credential
// entering a sandbox. Git there talks to the server, which adds the credential and forwards requests to the
// repository's host.
//
// It serves only git's own requests, and only for hosts for which the sandbox's environment has a credential. It looks
// up the credential for each request. A credential that lives for a minute is therefore enough, and one that was
// revoked stops working at once.
//
// There is no LFS. A host answers its requests with the headers that fetch the files, and those hold a credential: the
// one that the door has added, or one that the host makes for the purpose. Either would enter the sandbox.
//
// A credential that is a private key is used by ssh; see ssh.go. A host's key is checked before anything is sent. If the private key is
// that of a GitHub App, the door makes tokens with it; see app.go.
package gitdoor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

const (
	// maxRequests limits the requests of one house at a time.
	maxRequests = 32
	// maxTime limits one request, because a large repository takes long, but not forever.
	maxTime = time.Hour
	// answerTimeout limits how long a host may take to begin its answer. It may have to pack a large repository first.
	answerTimeout = 5 * time.Minute
	// maxRedirects limits redirects, which hosts use for repositories that were renamed.
	maxRedirects = 3
)

// Config configures [New]. Credential and Dial are required.
type Config struct {
	// Credential returns the credential of an environment of a house for a host. If there is none, the error is a
	// [fault.Forbidden] or a [fault.Precondition] that says what to do.
	Credential func(ctx context.Context, house, environment, host string) (Credential, error)
	// Tokens are the tokens of sandboxes that ask over the network, and Environment returns the environment of such a sandbox,
	// unless the sandbox is gone. Defaults to none: only connections from inside sandboxes are served.
	Tokens      *Tokens
	Environment func(ctx context.Context, house, sandbox string) (environment string, err error)
	// Dial connects to a host, but never to an address that is not public.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Authorities sign the certificates of hosts. Defaults to the machine's.
	Authorities *x509.CertPool
	// Redact is called with each token that the door makes, so that logs leave it out. Defaults to nothing.
	Redact func(value []byte)
	// Now defaults to the machine's clock.
	Now func() time.Time
	// Logger defaults to none.
	Logger *slog.Logger
}

// Door forwards git's requests. It is safe for concurrent use.
type Door struct {
	config Config
	client *http.Client
	api    *http.Client
	tokens tokens
	crowd  httpd.Crowd
}

// New returns a door.
func New(c Config) *Door {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	transport := &http.Transport{
		DialContext: c.Dial, TLSClientConfig: &tls.Config{RootCAs: c.Authorities}, TLSHandshakeTimeout: 15 * time.Second,
		ResponseHeaderTimeout: answerTimeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true, // forward the bytes unchanged
		Proxy:              nil,  // Dial handles it
		ForceAttemptHTTP2:  true,
	}
	never := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Door{
		config: c, tokens: tokens{now: c.Now, held: map[grant]token{}, making: map[grant]chan struct{}{}},
		api: &http.Client{Transport: transport, CheckRedirect: never},
		client: &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
			// The credential is only for this host and for git.
			if _, err := targetOf(r.Method, r.URL.Path, r.URL.Query()); err != nil || r.URL.Scheme != "https" || r.URL.Host != via[0].URL.Host || len(via) > maxRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		}},
	}
}

// Serves reports whether a request is for this door.
func Serves(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, sandbox.GitPath) }

// Serve answers a request from a sandbox of a house's environment.
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, house, environment string) {
	if err := d.pass(w, r, house, environment); err != nil {
		status := fault.CodeOf(err).HTTPStatus()
		if status == http.StatusUnauthorized {
			status = http.StatusForbidden // otherwise git would ask the person for a password
		}
		d.refuse(w, r, err, status)
	}
}

// refuse answers a request that failed.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, err error, status int) {
	f := fault.From(err)
	level := slog.LevelDebug // only the log has the cause
	if f.Code == fault.Internal {
		level = slog.LevelError
	}
	d.config.Logger.Log(r.Context(), level, "a request of git failed", "error", f.Detail())
	// As text, which git shows, or as LFS shows it.
	kind, text := "text/plain; charset=utf-8", fmt.Sprintf("arbe: %s; %s\n", f.Message, f.Next)
	if strings.Contains(r.URL.Path, lfsPath) {
		encoded, _ := json.Marshal(map[string]string{"message": strings.TrimSpace(text)}) // a string never fails
		kind, text = "application/vnd.git-lfs+json", string(encoded)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a failure here has no other reader
}

// pass forwards a request and its answer. If it returns an error, it has answered nothing.
func (d *Door) pass(w http.ResponseWriter, r *http.Request, house, environment string) error {
	leave, ok := d.crowd.Enter(house, maxRequests)
	if !ok {
		return fault.Newf(fault.Exhausted, "try again", "git in this house's sandboxes makes more than %d requests at a time", maxRequests)
	}
	defer leave()
	host, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, sandbox.GitPath), "/")
	target, err := targetOf(r.Method, "/"+rest, r.URL.Query())
	if err != nil {
		return err
	}
	c, err := d.config.Credential(r.Context(), house, environment, host)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), maxTime)
	defer stop()
	if c.isKey() && c.App.ID == "" {
		return d.passSSH(ctx, w, r, host, target, c)
	}
	overHTTPS(target, host)
	answer, err := d.ask(ctx, r, target, c)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := refusalBy(host, answer, c); err != nil {
		return err
	}
	passBack(w, answer)
	return nil
}

// overHTTPS makes a target the address of a repository at a host.
func overHTTPS(target *url.URL, host string) {
	target.Path = strings.Replace(target.Path, "/"+sandbox.GitRoot, "/", 1)
	target.Scheme, target.Host = "https", host
}

// refusalBy explains an answer that git in the sandbox would misunderstand.
func refusalBy(host string, answer *http.Response, c Credential) error {
	switch {
	case answer.StatusCode == http.StatusUnauthorized && c.App.ID != "":
		return fault.Newf(fault.Forbidden, "try again; if it stays, check the App's installation at GitHub", "%s refuses a token of the GitHub App %s", host, c.App.ID)
	case answer.StatusCode == http.StatusUnauthorized:
		return fault.Newf(fault.Forbidden, "give the secret a new value with: arbe secret set", "%s refuses the credential of this environment", host)
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return fault.Newf(fault.Precondition, "use the repository's new address", "%s says that the repository is somewhere else", host)
	}
	return nil
}

// passBack sends a host's answer to git.
func passBack(w http.ResponseWriter, answer *http.Response) {
	h := w.Header()
	for _, name := range passedBack {
		if value := answer.Header.Get(name); value != "" {
			h.Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(flushing{w, http.NewResponseController(w)}, answer.Body) // git notices an incomplete answer
}

// ask asks a host by https, with a credential.
func (d *Door) ask(ctx context.Context, r *http.Request, target *url.URL, c Credential) (*http.Response, error) {
	if c.App.ID == "" {
		return d.askWith(ctx, r, target, cmp.Or(c.User, sandbox.DefaultGitUser), c.Password)
	}
	g, err := grantOf(c, target.Host, target)
	if err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		value, err := d.tokenOf(ctx, g, c.Password)
		if err != nil {
			return nil, err
		}
		answer, err := d.askWith(ctx, r, target, sandbox.DefaultGitUser, value)
		if err != nil || answer.StatusCode != http.StatusUnauthorized {
			return answer, err
		}
		// The token was revoked, or the clock is wrong. A body cannot be sent twice; git begins each exchange without one.
		d.tokens.drop(g, value)
		if again || r.ContentLength != 0 {
			return answer, nil
		}
		answer.Body.Close()
	}
}

// askWith asks a host by https, with a user name and a password.
func (d *Door) askWith(ctx context.Context, r *http.Request, target *url.URL, user, password string) (*http.Response, error) {
	ask, err := http.NewRequestWithContext(ctx, r.Method, target.String(), r.Body)
	if err != nil {
		return nil, err
	}
	if ask.ContentLength = r.ContentLength; r.ContentLength == 0 {
		ask.Body = nil
	}
	for _, name := range passedOn {
		if value := r.Header.Get(name); value != "" {
			ask.Header.Set(name, value)
		}
	}
	ask.SetBasicAuth(user, password)
	answer, err := d.client.Do(ask)
	if err != nil {
		return nil, unreachable(target.Host, "https", err)
	}
	return answer, nil
}

// unreachable is the error for a host to which there is no connection. It leaves out the cause, which may have addresses of the
// operator's network.
func unreachable(host, by string, err error) error {
	if _, private := errors.AsType[*outbound.RefusedError](err); private {
		return fault.Newf(fault.Forbidden, "use another host, or ask the operator to add it to the setting sandbox_private_hosts", "%s is not at a public address", host).Because(err)
	}
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return fault.Newf(fault.Precondition, "check the host's name and its certificate", "%s shows a certificate that this server does not trust", host).Because(err)
	}
	return fault.Newf(fault.Unavailable, "try again, or check the host's name", "%s cannot be reached by %s", host, by).Because(err)
}

// passedOn and passedBack are the headers of requests and answers that git needs. They include no credential.
var (
	passedOn   = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "Content-Encoding", "Git-Protocol", "User-Agent"}
	passedBack = []string{"Content-Type", "Content-Encoding", "Content-Length", "Cache-Control"}
)

// flushing forwards each write at once, because git shows progress.
type flushing struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

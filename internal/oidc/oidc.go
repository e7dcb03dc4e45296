// Package oidc logs people in with an OpenID Connect provider: the authorization code flow with PKCE.
//
// A login begins with [Provider.Begin] and finishes with [Provider.Finish] in the same browser. Between the two, the server
// keeps nothing: the browser holds a secret, from which state, nonce and the verifier of PKCE are derived with the server's key.
// So every server of an installation can finish a login, and a login that nobody finishes costs nothing.
package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// attemptTTL is how long a person has to log in at the provider.
	attemptTTL = 10 * time.Minute
	// patience limits all requests to the provider for one step of a login.
	patience = 15 * time.Second
	// knownFor is how long the description of the provider is reused.
	knownFor = time.Hour
	// skew is how far the provider's clock may be from ours.
	skew = time.Minute
	// maxAtOnce is how many logins may wait for the provider at a time.
	maxAtOnce = 32
)

// Provider is the login provider of an installation. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	client *http.Client
	asked  singleflight.Group
	slots  chan struct{}

	mu    sync.Mutex
	known *description
	since time.Time
}

// description is the provider's description of itself.
type description struct {
	provider *oidc.Provider
	endpoint oauth2.Endpoint
	verifier *oidc.IDTokenVerifier
}

// New returns the provider of a configuration, or nil if it names none. It makes no request, so a provider that does not
// answer does not delay the start.
func New(c Config) *Provider {
	if c.Issuer == "" {
		return nil
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Provider{cfg: c, slots: make(chan struct{}, maxAtOnce), client: &http.Client{
		Transport: limited{http.DefaultTransport}, Timeout: patience,
		// Requests carry the client's secret and codes, which nobody else may get.
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the login provider redirects") },
	}}
}

// Name is the provider's name for people; empty if p is nil.
func (p *Provider) Name() string {
	if p == nil {
		return ""
	}
	return p.cfg.Name
}

// Attempt is a login that has begun.
type Attempt struct {
	// URL is the provider's page. Secret belongs to the browser that opens it: only its holder can finish the login.
	URL, Secret string
	Expires     time.Time
}

// Begin begins a login. If agent is not empty, the login connects the account to that agent, who is logged in.
func (p *Provider) Begin(ctx context.Context, agent string) (Attempt, error) {
	d, err := p.describe(ctx)
	if err != nil {
		return Attempt{}, err
	}
	expires := time.Now().Add(attemptTTL)
	secret, err := p.newSecret(agent, expires)
	if err != nil {
		return Attempt{}, err
	}
	page := p.oauth(d).AuthCodeURL(p.derive("state", secret), oidc.Nonce(p.derive("nonce", secret)), oauth2.S256ChallengeOption(p.derive("verifier", secret)))
	return Attempt{URL: page, Secret: secret, Expires: expires}, nil
}

// Answer is the provider's answer, which the browser brings.
type Answer struct{ State, Code, Issuer, Error string }

// Person is who has logged in at the provider.
type Person struct {
	// Issuer and Subject identify the account for good. Email is verified, and may belong to somebody else later.
	Issuer, Subject, Email, Name string
	// Roles are the roles that the person's groups give, by house.
	Roles map[string]string
	// Agent is who began the login to connect the account; empty for a login.
	Agent string
}

// Finish finishes the login of a secret, once. Whatever the provider says that is not signed for this very login is refused.
func (p *Provider) Finish(ctx context.Context, secret string, a Answer) (Person, error) {
	agent, expires, err := p.begun(secret, a)
	if err != nil {
		return Person{}, err
	}
	if first, err := p.cfg.UseOnce(ctx, "login/"+a.State, expires); err != nil {
		return Person{}, err
	} else if !first {
		return Person{}, again("this login was already finished")
	}
	if err := p.refusal(ctx, a); err != nil {
		return Person{}, err
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		return Person{}, fault.New(fault.Unavailable, "too many people log in right now", "try again in a minute")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := p.ask(ctx, secret, a.Code)
	if err != nil {
		return Person{}, err
	}
	found.Agent = agent
	return found, nil
}

// begun returns what a login began with. It refuses an answer that is not for this login.
func (p *Provider) begun(secret string, a Answer) (agent string, expires time.Time, err error) {
	agent, expires, ok := p.open(secret)
	switch {
	case !ok:
		err = again("this browser has not begun this login, or began another one since")
	case !time.Now().Before(expires):
		err = again("this login took longer than ten minutes")
	case subtle.ConstantTimeCompare([]byte(a.State), []byte(p.derive("state", secret))) != 1:
		err = again("this answer of " + p.cfg.Name + " belongs to another login")
	case a.Issuer != "" && a.Issuer != p.cfg.Issuer:
		err = again("this answer comes from another login provider")
	}
	return agent, expires, err
}

// refusal explains an answer without a code.
func (p *Provider) refusal(ctx context.Context, a Answer) error {
	switch {
	case a.Error == "access_denied":
		return fault.Newf(fault.Unauthenticated, "log in again, or ask the operator of "+p.cfg.Name+" for access", "%s did not log you in", p.cfg.Name)
	case a.Error != "" || a.Code == "":
		p.cfg.Logger.WarnContext(ctx, "the login provider refused a login", "error", a.Error)
		return fault.Newf(fault.Unauthenticated, "try again; if it happens again, the operator finds the reason in the server's log", "%s did not log you in", p.cfg.Name)
	}
	return nil
}

// ask exchanges a code for the provider's statement about the person.
func (p *Provider) ask(ctx context.Context, secret, code string) (Person, error) {
	d, err := p.describe(ctx)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	s, err := p.exchange(ctx, d, secret, code)
	if err != nil {
		return Person{}, err
	}
	groups, grouped := s.claims.groups(s.id, p.cfg.GroupsClaim)
	grouped = grouped || len(p.cfg.Roles) == 0 // then nobody needs them
	// Many providers leave these claims to the other endpoint.
	if (s.claims.Email == "" || !grouped) && d.provider.UserInfoEndpoint() != "" {
		more, err := p.complete(ctx, d, s)
		if err != nil {
			return Person{}, err
		}
		if !grouped {
			groups = more
		}
	}
	if err := p.admits(s.claims); err != nil {
		return Person{}, err
	}
	return Person{Issuer: s.id.Issuer, Subject: s.id.Subject, Email: s.claims.Email, Name: s.claims.Name, Roles: p.roles(groups)}, nil
}

// statement is what a provider states about a person.
type statement struct {
	token  *oauth2.Token
	id     *oidc.IDToken
	claims claims
}

// exchange exchanges a code for a statement that the provider signed for this login.
func (p *Provider) exchange(ctx context.Context, d *description, secret, code string) (*statement, error) {
	token, err := p.oauth(d).Exchange(ctx, code, oauth2.VerifierOption(p.derive("verifier", secret)))
	if err != nil {
		return nil, p.unusable(ctx, "it does not exchange the code", err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, p.unusable(ctx, "its ID token is not valid", err)
	}
	s := &statement{token: token, id: id}
	if err := id.Claims(&s.claims); err != nil {
		return nil, p.unusable(ctx, "its ID token cannot be read", err)
	}
	switch c := s.claims; {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(p.derive("nonce", secret))) != 1:
		return nil, p.unusable(ctx, "its ID token is for another login", nil)
	case c.Party != "" && c.Party != p.cfg.ClientID, c.Party == "" && len(id.Audience) > 1:
		return nil, p.unusable(ctx, "its ID token is for another program", nil)
	case id.Subject == "" || len(id.Subject) > 255:
		return nil, p.unusable(ctx, "its ID token names nobody", nil)
	case id.AccessTokenHash != "":
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, p.unusable(ctx, "its tokens do not belong together", err)
		}
	}
	return s, nil
}

// complete completes a statement at the endpoint for people, and returns the groups that are known there.
func (p *Provider) complete(ctx context.Context, d *description, s *statement) (groups []string, err error) {
	info, err := d.provider.UserInfo(ctx, oauth2.StaticTokenSource(s.token))
	if err != nil {
		return nil, p.unusable(ctx, "it does not say who the person is", err)
	}
	var more claims
	if err := info.Claims(&more); err != nil || info.Subject != s.id.Subject {
		return nil, p.unusable(ctx, "it describes somebody else", err)
	}
	if s.claims.Email == "" {
		s.claims.Email, s.claims.Verified = more.Email, more.Verified
	}
	if s.claims.Name == "" {
		s.claims.Name = more.Name
	}
	groups, _ = more.groups(info, p.cfg.GroupsClaim)
	return groups, nil
}

// admits returns an error if an address may not log in.
func (p *Provider) admits(c claims) error {
	name, domain, ok := strings.Cut(c.Email, "@")
	switch {
	case !ok || name == "" || len(c.Email) > 320:
		return fault.Newf(fault.Unauthenticated, "add an e-mail address to your account there, and log in again", "%s did not say your e-mail address", p.cfg.Name)
	case !bool(c.Verified):
		return fault.Newf(fault.Unauthenticated, "verify it there, and log in again", "%s has not verified your e-mail address", p.cfg.Name)
	case len(p.cfg.Domains) > 0 && !slices.Contains(p.cfg.Domains, strings.ToLower(domain)):
		return fault.New(fault.Unauthenticated, "e-mail addresses of your domain may not log in here", "log in with another account, or ask the operator of this server")
	}
	return nil
}

// roles returns the highest role that groups give in each house.
func (p *Provider) roles(groups []string) map[string]string {
	roles := map[string]string{}
	for _, g := range p.cfg.Roles {
		if g.Group != "*" && !slices.Contains(groups, g.Group) {
			continue
		}
		if roles[g.House] != "owner" {
			roles[g.House] = g.Role
		}
	}
	return roles
}

// describe returns the provider's description of itself. Callers share one request.
func (p *Provider) describe(ctx context.Context) (*description, error) {
	p.mu.Lock()
	known, fresh := p.known, time.Since(p.since) < knownFor
	p.mu.Unlock()
	if known != nil && fresh {
		return known, nil
	}
	result := p.asked.DoChan("", func() (any, error) { return p.discover(ctx) })
	select {
	case r := <-result:
		if r.Err == nil {
			return r.Val.(*description), nil
		}
		if known != nil { // an hour-old description is better than no login
			return known, nil
		}
		p.cfg.Logger.WarnContext(ctx, "the login provider does not describe itself", "issuer", p.cfg.Issuer, "error", r.Err)
		return nil, fault.Newf(fault.Unavailable, "try again in a minute, or log in with a login link", "%s does not answer", p.cfg.Name).Because(r.Err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// discover asks the provider for its description, and keeps it.
func (p *Provider) discover(ctx context.Context) (*description, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), p.client), patience)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	d, err := p.describedBy(provider)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.since = d, time.Now()
	return d, nil
}

// describedBy checks and completes a description.
func (p *Provider) describedBy(provider *oidc.Provider) (*description, error) {
	var said struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Keys    string   `json:"jwks_uri"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, err
	}
	d := &description{provider: provider, endpoint: provider.Endpoint()}
	for _, address := range []string{d.endpoint.AuthURL, d.endpoint.TokenURL, said.Keys, provider.UserInfoEndpoint()} {
		if u, err := url.Parse(address); address != "" && (err != nil || !safe(u)) {
			return nil, errors.New("the login provider names an address without https: " + address)
		}
	}
	if d.endpoint.AuthURL == "" || d.endpoint.TokenURL == "" || said.Keys == "" {
		return nil, errors.New("the login provider does not name its endpoints")
	}
	// Decide here. Trying the methods one after the other would use the code up.
	d.endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if len(said.Methods) > 0 && !slices.Contains(said.Methods, "client_secret_basic") || p.cfg.ClientSecret == "" {
		d.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	d.verifier = provider.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: func() time.Time { return time.Now().Add(-skew) }})
	return d, nil
}

func (p *Provider) oauth(d *description) *oauth2.Config {
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: d.endpoint, RedirectURL: p.cfg.Redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...)}
}

// A secret is the base 64 of 16 random bytes, the agent's id (zeros for none), the time when it expires in seconds, and an
// HMAC of all that.
const secretLength = 16 + 16 + 8

func (p *Provider) newSecret(agent string, expires time.Time) (string, error) {
	content := make([]byte, secretLength)
	rand.Read(content[:16])
	if agent != "" {
		id, err := uuid.Parse(agent)
		if err != nil {
			return "", err
		}
		copy(content[16:], id[:])
	}
	binary.BigEndian.PutUint64(content[32:], uint64(expires.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(content, p.mac("secret", content)...)), nil
}

// open reads a secret of newSecret. ok is false for everything else.
func (p *Provider) open(secret string) (agent string, expires time.Time, ok bool) {
	content, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(content) != secretLength+sha256.Size || !hmac.Equal(content[secretLength:], p.mac("secret", content[:secretLength])) {
		return "", time.Time{}, false
	}
	if id := uuid.UUID(content[16:32]); id != uuid.Nil {
		agent = id.String()
	}
	return agent, time.Unix(int64(binary.BigEndian.Uint64(content[32:])), 0), true
}

func (p *Provider) mac(purpose string, content []byte) []byte {
	h := hmac.New(sha256.New, p.cfg.Key)
	h.Write([]byte(purpose + "\x00"))
	h.Write(content)
	return h.Sum(nil)
}

// derive returns a value of a login that only this installation can compute.
func (p *Provider) derive(purpose, secret string) string {
	return base64.RawURLEncoding.EncodeToString(p.mac(purpose, []byte(secret)))
}

// again returns the error for an answer that belongs to no login of this browser.
func again(what string) error { return fault.New(fault.Unauthenticated, what, "log in again") }

// unusable returns the error for a provider that says something wrong. People see only that; the log has the reason, which may
// quote the provider.
func (p *Provider) unusable(ctx context.Context, what string, err error) error {
	p.cfg.Logger.WarnContext(ctx, "a login failed: "+what, "issuer", p.cfg.Issuer, "error", err)
	if ctx.Err() != nil {
		return fault.Newf(fault.Unavailable, "try again in a minute, or log in with a login link", "%s does not answer", p.cfg.Name).Because(err)
	}
	return fault.Newf(fault.Unauthenticated, "try again; if it happens again, the operator finds the reason in the server's log", "the login with %s failed: %s", p.cfg.Name, what).Because(err)
}

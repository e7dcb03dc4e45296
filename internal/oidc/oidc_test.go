package oidc_test

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/setting"
)

// double is a provider that says what a test wants.
type double struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu sync.Mutex
	// alter changes the claims of the next ID token, and sign makes the token of claims.
	alter func(claims map[string]any)
	sign  func(claims map[string]any) string
	// token, keys and discovery answer instead of the provider's own handlers, unless they are nil.
	token, keys, discovery http.HandlerFunc
	// asked are the forms of the token requests.
	asked []url.Values
}

func newDouble(t *testing.T) *double {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	d := &double{key: key}
	d.sign = d.rs256
	mux := http.NewServeMux()
	instead := func(other *http.HandlerFunc, own http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			h := *other
			d.mu.Unlock()
			if h != nil {
				h(w, r)
			} else {
				own(w, r)
			}
		}
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", instead(&d.discovery, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": d.URL, "authorization_endpoint": d.URL + "/authorize", "token_endpoint": d.URL + "/token", "jwks_uri": d.URL + "/keys",
			// A provider that is taken over would say so.
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}})
	}))
	mux.HandleFunc("GET /keys", instead(&d.keys, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "1", "use": "sig", "n": part(d.key.N.Bytes()), "e": part(big.NewInt(int64(d.key.E)).Bytes())}}})
	}))
	mux.HandleFunc("POST /token", instead(&d.token, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked = append(d.asked, r.PostForm)
		// The code of this provider is the nonce of the login.
		claims := map[string]any{"iss": d.URL, "aud": "arbe", "sub": "ann", "nonce": r.PostFormValue("code"), "email": "ann@example.com", "email_verified": true,
			"name": "Ann", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"staff"}}
		if d.alter != nil {
			d.alter(claims)
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": d.sign(claims)})
	}))
	d.Server = httptest.NewServer(mux)
	t.Cleanup(d.Close)
	return d
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func part(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unsigned(alg string, claims map[string]any) string {
	head, _ := json.Marshal(map[string]string{"alg": alg, "kid": "1"})
	body, _ := json.Marshal(claims)
	return part(head) + "." + part(body)
}

func (d *double) rs256(claims map[string]any) string { return signedWith(d.key, claims) }

func signedWith(key *rsa.PrivateKey, claims map[string]any) string {
	text := unsigned("RS256", claims)
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	return text + "." + part(signature)
}

// provider returns a login provider at the double.
func (d *double) provider(t *testing.T, change ...func(*oidc.Config)) *oidc.Provider {
	t.Helper()
	c := setting.Defaults(oidc.Settings())
	var mu sync.Mutex
	used := map[string]bool{}
	c.Issuer, c.ClientID, c.ClientSecret, c.Redirect, c.Key = d.URL, "arbe", "secret", "https://arbe.example.com/login/callback", []byte("key")
	c.UseOnce = func(_ context.Context, id string, _ time.Time) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		first := !used[id]
		used[id] = true
		return first, nil
	}
	for _, f := range change {
		f(&c)
	}
	return oidc.New(c)
}

// begin begins a login, and returns it with what an honest provider would send back.
func begin(t *testing.T, p *oidc.Provider) (oidc.Attempt, oidc.Answer) {
	t.Helper()
	attempt, err := p.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	page, err := url.Parse(attempt.URL)
	if err != nil {
		t.Fatal(err)
	}
	return attempt, oidc.Answer{State: page.Query().Get("state"), Code: page.Query().Get("nonce")}
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Code != fault.Unauthenticated && f.Code != fault.Unavailable || !strings.Contains(f.Message, why) || f.Next == "" {
		t.Errorf("the login ends with %v, want a refusal that says %q and what to do next", err, why)
	}
}

func TestALogin(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	p := d.provider(t, func(c *oidc.Config) {
		c.Roles = []oidc.GroupRole{{"staff", "h1", "member"}, {"admins", "h1", "owner"}, {"*", "h2", "member"}}
	})
	attempt, a := begin(t, p)
	page, _ := url.Parse(attempt.URL)
	q := page.Query()
	for name, want := range map[string]string{"response_type": "code", "client_id": "arbe", "redirect_uri": "https://arbe.example.com/login/callback",
		"scope": "openid email profile", "code_challenge_method": "S256"} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	person, err := p.Finish(t.Context(), attempt.Secret, a)
	if err != nil {
		t.Fatal(err)
	}
	if person.Issuer != d.URL || person.Subject != "ann" || person.Email != "ann@example.com" || person.Name != "Ann" || person.Agent != "" ||
		!maps.Equal(person.Roles, map[string]string{"h1": "member", "h2": "member"}) {
		t.Errorf("it logs in %+v", person)
	}
	challenge := sha256.Sum256([]byte(d.asked[0].Get("code_verifier")))
	if part(challenge[:]) != q.Get("code_challenge") {
		t.Error("the verifier does not belong to the challenge")
	}
	t.Run("works once", func(t *testing.T) {
		_, err := p.Finish(t.Context(), attempt.Secret, a)
		refused(t, err, "already finished")
	})
	t.Run("belongs to the browser that began it", func(t *testing.T) {
		mine, _ := begin(t, p)
		_, other := begin(t, p)
		_, err := p.Finish(t.Context(), mine.Secret, other)
		refused(t, err, "belongs to another login")
		for _, secret := range []string{"", "x", mine.Secret + "A", strings.Repeat("A", len(mine.Secret)), mine.Secret[:20] + "B" + mine.Secret[21:]} {
			if secret == mine.Secret {
				continue
			}
			_, err = p.Finish(t.Context(), secret, other)
			refused(t, err, "has not begun this login")
		}
	})
	t.Run("remembers who connects an account", func(t *testing.T) {
		const agent = "b3c1d4e0-0000-4000-8000-000000000001"
		attempt, err := p.Begin(t.Context(), agent)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := url.Parse(attempt.URL)
		person, err := p.Finish(t.Context(), attempt.Secret, oidc.Answer{State: page.Query().Get("state"), Code: page.Query().Get("nonce")})
		if err != nil || person.Agent != agent {
			t.Errorf("it connects %q (%v), want %s", person.Agent, err, agent)
		}
	})
	t.Run("that the provider refuses says so", func(t *testing.T) {
		attempt, a := begin(t, p)
		_, err := p.Finish(t.Context(), attempt.Secret, oidc.Answer{State: a.State, Error: "access_denied"})
		refused(t, err, "did not log you in")
	})
	t.Run("with the answer of another provider is refused", func(t *testing.T) {
		attempt, a := begin(t, p)
		a.Issuer = "https://evil.example"
		_, err := p.Finish(t.Context(), attempt.Secret, a)
		refused(t, err, "another login provider")
	})
}

// TestAHostileProvider tries tokens that a provider, or somebody between, should not get accepted.
func TestAHostileProvider(t *testing.T) {
	t.Parallel()
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = value }
	}
	for name, test := range map[string]struct {
		alter func(map[string]any)
		sign  func(*double, map[string]any) string
		why   string // empty if the login succeeds
	}{
		"another issuer":         {alter: set("iss", "https://evil.example"), why: "not valid"},
		"another audience":       {alter: set("aud", "other"), why: "not valid"},
		"several audiences":      {alter: set("aud", []string{"arbe", "other"}), why: "for another program"},
		"issued to another":      {alter: set("azp", "other"), why: "for another program"},
		"expired":                {alter: set("exp", time.Now().Add(-2*time.Minute).Unix()), why: "not valid"},
		"expired within skew":    {alter: set("exp", time.Now().Add(-5*time.Second).Unix())},
		"not yet valid":          {alter: set("nbf", time.Now().Add(time.Hour).Unix()), why: "not valid"},
		"another nonce":          {alter: set("nonce", "other"), why: "for another login"},
		"no nonce":               {alter: func(c map[string]any) { delete(c, "nonce") }, why: "for another login"},
		"no subject":             {alter: set("sub", ""), why: "names nobody"},
		"long subject":           {alter: set("sub", strings.Repeat("x", 256)), why: "names nobody"},
		"unverified address":     {alter: set("email_verified", false), why: "has not verified"},
		"address without a word": {alter: func(c map[string]any) { delete(c, "email_verified") }, why: "has not verified"},
		"verified as a text":     {alter: set("email_verified", "true")},
		"no address":             {alter: func(c map[string]any) { delete(c, "email") }, why: "did not say your e-mail address"},
		"another domain":         {alter: set("email", "ann@evil.example"), why: "domain may not log in"},
		"domain at the front":    {alter: set("email", "ann@example.com@evil.example"), why: "domain may not log in"},
		"capital domain":         {alter: set("email", "ann@EXAMPLE.com")},
		"wrong access token":     {alter: set("at_hash", "other"), why: "do not belong together"},
		"alg none":               {sign: func(_ *double, c map[string]any) string { return unsigned("none", c) + "." }, why: "not valid"},
		"another key":            {sign: func(_ *double, c map[string]any) string { return signedWith(stranger, c) }, why: "not valid"},
		"no token":               {sign: func(*double, map[string]any) string { return "" }, why: "not valid"},
		"HS256 with the public key": {sign: func(d *double, c map[string]any) string {
			public, _ := x509.MarshalPKIXPublicKey(&d.key.PublicKey)
			text := unsigned("HS256", c)
			mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
			mac.Write([]byte(text))
			return text + "." + part(mac.Sum(nil))
		}, why: "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			d.alter = test.alter
			if test.sign != nil {
				d.sign = func(c map[string]any) string { return test.sign(d, c) }
			}
			p := d.provider(t, func(c *oidc.Config) { c.Domains = []string{"example.com"} })
			attempt, a := begin(t, p)
			person, err := p.Finish(t.Context(), attempt.Secret, a)
			if test.why != "" {
				refused(t, err, test.why)
			} else if err != nil || person.Subject != "ann" {
				t.Errorf("it logs in %+v (%v), want ann", person, err)
			}
		})
	}
}

// endless answers until its client has enough.
func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for {
		if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
			return
		}
	}
}

func TestAnEndlessAnswer(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(*double){
		"token": func(d *double) { d.token = endless },
		"keys":  func(d *double) { d.keys = endless },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			at(d)
			p := d.provider(t)
			attempt, a := begin(t, p)
			_, err := p.Finish(t.Context(), attempt.Secret, a)
			refused(t, err, "")
		})
	}
	t.Run("description", func(t *testing.T) {
		t.Parallel()
		d := newDouble(t)
		d.discovery = endless
		_, err := d.provider(t).Begin(t.Context(), "")
		refused(t, err, "does not answer")
	})
}

func TestAProviderThatIsAway(t *testing.T) {
	t.Parallel()
	t.Run("is asked again at the next login", func(t *testing.T) {
		t.Parallel()
		d := newDouble(t)
		d.discovery = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		p := d.provider(t)
		_, err := p.Begin(t.Context(), "")
		refused(t, err, "does not answer")
		d.mu.Lock()
		d.discovery = nil
		d.mu.Unlock()
		begin(t, p)
	})
	t.Run("or hangs is not waited for longer than its reader waits", func(t *testing.T) {
		t.Parallel()
		d := newDouble(t)
		asked, done := make(chan struct{}, 1), make(chan struct{})
		t.Cleanup(func() { close(done) }) // before the double closes
		d.discovery = func(http.ResponseWriter, *http.Request) {
			asked <- struct{}{}
			<-done
		}
		p := d.provider(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		if _, err := p.Begin(ctx, ""); err == nil {
			t.Error("the login has begun")
		}
	})
	t.Run("with an address that others can read is refused", func(t *testing.T) {
		t.Parallel()
		d := newDouble(t)
		d.discovery = func(w http.ResponseWriter, _ *http.Request) {
			answer(w, map[string]any{"issuer": d.URL, "authorization_endpoint": d.URL + "/authorize", "token_endpoint": "http://evil.example/token", "jwks_uri": d.URL + "/keys"})
		}
		_, err := d.provider(t).Begin(t.Context(), "")
		refused(t, err, "does not answer")
	})
	t.Run("and redirects is not followed", func(t *testing.T) {
		t.Parallel()
		d := newDouble(t)
		d.token = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, d.URL+"/elsewhere", http.StatusTemporaryRedirect)
		}
		p := d.provider(t)
		attempt, a := begin(t, p)
		_, err := p.Finish(t.Context(), attempt.Secret, a)
		refused(t, err, "does not exchange")
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	named := map[string]setting.Setting[oidc.Config]{}
	for _, s := range oidc.Settings() {
		named[s.Name] = s
	}
	for name, texts := range map[string][]string{
		"oidc_issuer":  {"accounts.example.com", "http://accounts.example.com", "ftp://x", "https://", "https://u:p@x.example", "https://x.example?a=b", "javascript:alert(1)"},
		"oidc_domains": {"ann@example.com", "*.example.com", "https://example.com"},
		"oidc_roles":   {"x", "=h:owner", "g=:owner", "g=h", "g=h:admin", "g=h:owner,", ","},
	} {
		for _, text := range texts {
			var c oidc.Config
			if f := fault.From(named[name].Set(&c, text)); f == nil || f.Code != fault.Invalid || f.Next == "" {
				t.Errorf("%s=%s: %v", name, text, f)
			}
		}
	}
	var c oidc.Config
	if err := named["oidc_roles"].Set(&c, "Platform Team=h1:owner, cn=x=h2:member,*=h3:member"); err != nil || len(c.Roles) != 3 ||
		c.Roles[0] != (oidc.GroupRole{"Platform Team", "h1", "owner"}) || c.Roles[1] != (oidc.GroupRole{"cn=x", "h2", "member"}) {
		t.Errorf("the roles are %v (%v)", c.Roles, err)
	}
	if c := (oidc.Config{Issuer: "https://x.example"}); fault.CodeOf(c.Check()) != fault.Invalid {
		t.Error("an issuer without a client id is no mistake")
	}
}

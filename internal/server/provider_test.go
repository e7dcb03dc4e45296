package server_test

import (
	"bufio"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/internal/setting"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// identityProvider is a real OpenID Connect provider, in its own process.
type identityProvider struct {
	t      *testing.T
	issuer string
	groups string // the file of groups
	input  io.Writer
}

// startProvider builds and starts the provider of internal/oidc/testdata. It is a module of its own, so that this one does not
// depend on it.
func startProvider(t *testing.T) *identityProvider {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "provider")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".")
	build.Dir, build.Env = "../oidc/testdata/provider", append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("building the provider: %v: %s", err, said)
		}
		t.Skipf("the provider cannot be built, because its modules cannot be downloaded: %v: %s", err, said)
	}
	users := map[string]any{}
	for id, verified := range map[string]bool{"ann": true, "bob": true, "eve": false} {
		users[id] = map[string]any{"ID": id, "Username": id, "Password": "secret", "FirstName": strings.ToUpper(id[:1]) + id[1:], "LastName": "Example",
			"Email": id + "@example.com", "EmailVerified": verified, "PreferredLanguage": "en"}
	}
	p := &identityProvider{t: t, groups: filepath.Join(dir, "groups.json")}
	text, err := json.Marshal(users)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "users.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.group(nil)
	cmd := exec.Command(binary, filepath.Join(dir, "users.json"), p.groups)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider does not start: %v", err)
	}
	p.issuer = strings.TrimSpace(line)
	return p
}

// sendBackTo lets the provider serve, and send browsers back to one address and to no other.
func (p *identityProvider) sendBackTo(address string) {
	p.t.Helper()
	if _, err := io.WriteString(p.input, address+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// group sets the groups of all people.
func (p *identityProvider) group(groups map[string][]string) {
	p.t.Helper()
	text, err := json.Marshal(groups)
	if err == nil {
		err = os.WriteFile(p.groups, text, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

var (
	refresh   = regexp.MustCompile(`http-equiv="refresh" content="0;url=([^"]+)"`)
	requestID = regexp.MustCompile(`name="id" value="([^"]+)"`)
)

// leave begins a login on the page, and returns the address of the provider.
func (b *browser) leave(address string, form url.Values) string {
	b.t.Helper()
	left := b.page(b.PostForm(address+"/login/provider", form))
	to := refresh.FindStringSubmatch(left.body)
	if to == nil {
		b.t.Fatalf("the page with status %d does not lead to the provider: %s", left.status, left.body)
	}
	return html.UnescapeString(to[1])
}

// logInWith logs in at the provider, and returns the page of arbe that it leads to.
func (b *browser) logInWith(p *identityProvider, address, user string, form url.Values) page {
	b.t.Helper()
	asks := b.get(b.leave(address, form))
	id := requestID.FindStringSubmatch(asks.body)
	if id == nil {
		b.t.Fatalf("the provider does not ask who it is: %s", asks.body)
	}
	return b.page(b.PostForm(p.issuer+"/login/username", url.Values{"username": {user}, "password": {"secret"}, "id": {id[1]}}))
}

// api returns a client with the session of a browser.
func (b *browser) api(address string) *arbe.Client {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(u) {
		if strings.HasSuffix(c.Name, arbev1.SessionCookie) {
			return arbe.New(address, c.Value)
		}
	}
	b.t.Fatal("the browser has no session")
	return nil
}

func (b *browser) me(address string) *arbev1.Agent {
	b.t.Helper()
	res, err := b.api(address).Agents.WhoAmI(b.t.Context(), &arbev1.WhoAmIRequest{})
	if err != nil {
		b.t.Fatal(err)
	}
	return res.Agent
}

func TestLoggingInWithAProvider(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	p := startProvider(t)

	// The first start makes the house whose id the settings name.
	first, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	owner := client(t, cfg)
	homes, err := owner.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	home := homes.Houses[0].Id
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Login = setting.Defaults(oidc.Settings())
	cfg.Login.Issuer, cfg.Login.ClientID, cfg.Login.ClientSecret, cfg.Login.Name = p.issuer, "arbe", "the client's secret", "Example"
	cfg.Login.Roles = []oidc.GroupRole{{Group: "staff", House: home, Role: "member"}, {Group: "admins", House: home, Role: "owner"}, {Group: "staff", House: "missing", Role: "owner"}}
	s := start(t, cfg)
	address := s.URL()
	p.sendBackTo(address + "/login/callback")
	owner = client(t, cfg)
	role := func(t *testing.T, agent string) string {
		t.Helper()
		members, err := owner.Houses.ListMembers(t.Context(), &arbev1.ListMembersRequest{HouseId: home})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members.Members {
			if m.Agent.Id == agent {
				return m.Role
			}
		}
		return ""
	}

	browsers := map[string]*browser{"ann": newBrowser(t), "bob": newBrowser(t)}
	t.Run("makes a new person, and the same account is the same person", func(t *testing.T) {
		b := browsers["ann"]
		if login := b.get(address + "/login"); !strings.Contains(login.body, "Log in with Example") {
			t.Errorf("the page has no button: %s", login.body)
		}
		if page := b.logInWith(p, address, "ann", nil); page.status != http.StatusOK {
			t.Fatalf("the login leads to a page with status %d: %s", page.status, page.body)
		}
		ann := b.me(address)
		if ann.Kind != "human" || !strings.Contains(ann.Name, "Ann") || role(t, ann.Id) != "" {
			t.Errorf("it logs in %v, who is %q of a house", ann, role(t, ann.Id))
		}
		again := newBrowser(t)
		again.logInWith(p, address, "ann", nil)
		if again.me(address).Id != ann.Id {
			t.Error("the second login is another person")
		}
	})
	ann := browsers["ann"].me(address).Id
	logIn := func(t *testing.T, groups ...string) {
		t.Helper()
		p.group(map[string][]string{"ann": groups})
		if page := browsers["ann"].logInWith(p, address, "ann", nil); page.status != http.StatusOK {
			t.Fatalf("the login leads to a page with status %d: %s", page.status, page.body)
		}
	}
	byHand := func(t *testing.T, role string) {
		t.Helper()
		if _, err := owner.Houses.UpdateMember(t.Context(), &arbev1.UpdateMemberRequest{HouseId: home, AgentId: ann, Role: role}); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(t *testing.T, want string) {
		t.Helper()
		if got := role(t, ann); got != want {
			t.Errorf("ann is %q of the house, want %q", got, want)
		}
	}
	t.Run("gives the roles of groups, and takes them away with the groups", func(t *testing.T) {
		for _, step := range []struct {
			groups []string
			want   string
		}{{[]string{"staff"}, "member"}, {[]string{"staff", "admins"}, "owner"}, {[]string{"admins"}, "owner"}, {[]string{"staff"}, "member"}, {nil, ""}, {[]string{"admins"}, "owner"}, {[]string{"other"}, ""}} {
			logIn(t, step.groups...)
			wants(t, step.want)
		}
		entries, err := owner.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: homes.Houses[0].PrimaryThreadId})
		if err != nil {
			t.Fatal(err)
		}
		joined := 0
		for _, e := range entries.Entries {
			if e.Type == "signal.house.member_joined" {
				joined++
			}
		}
		if joined != 2 {
			t.Errorf("the house's log tells of %d people who joined, want 2", joined)
		}
	})
	t.Run("leaves what was given by hand", func(t *testing.T) {
		logIn(t, "staff")
		byHand(t, "owner")
		logIn(t, "staff")
		wants(t, "owner")
		logIn(t)
		wants(t, "owner")
		byHand(t, "member")
		logIn(t, "admins")
		wants(t, "owner")
		logIn(t)
		wants(t, "member")
	})
	t.Run("leaves the last owner of a house", func(t *testing.T) {
		logIn(t, "admins")
		me, err := owner.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
		if err != nil {
			t.Fatal(err)
		}
		demote := func(agent, role string, by *arbe.Client) {
			t.Helper()
			if _, err := by.Houses.UpdateMember(t.Context(), &arbev1.UpdateMemberRequest{HouseId: home, AgentId: agent, Role: role}); err != nil {
				t.Fatal(err)
			}
		}
		demote(me.Agent.Id, "member", browsers["ann"].api(address))
		logIn(t)
		wants(t, "owner")
		demote(me.Agent.Id, "owner", browsers["ann"].api(address))
		logIn(t)
		wants(t, "member")
	})
	t.Run("connects an account to the person who is logged in", func(t *testing.T) {
		link, err := s.LoginLink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := browsers["bob"]
		b.login(link)
		before := b.me(address)
		if login := b.get(address + "/login"); !strings.Contains(login.body, "Connect Example to") {
			t.Errorf("the page does not offer to connect: %s", login.body)
		}
		b.logInWith(p, address, "bob", url.Values{"connect": {"1"}})
		if after := b.me(address); after.Id != before.Id {
			t.Errorf("it logs in %v, want %v", after, before)
		}
		elsewhere := newBrowser(t)
		elsewhere.logInWith(p, address, "bob", nil)
		if got := elsewhere.me(address); got.Id != before.Id {
			t.Errorf("the account logs in %v, want %v", got, before)
		}
		// Neither another account of the provider nor the account of somebody else is taken over.
		if page := b.logInWith(p, address, "ann", url.Values{"connect": {"1"}}); page.status != http.StatusConflict {
			t.Errorf("connecting somebody else's account leads to a page with status %d: %s", page.status, page.body)
		}
		if page := newBrowser(t).page(http.PostForm(address+"/login/provider", url.Values{"connect": {"1"}})); page.status != http.StatusUnauthorized {
			t.Errorf("connecting without a login leads to a page with status %d", page.status)
		}
	})
	t.Run("refuses an address that is not verified, and says what to do", func(t *testing.T) {
		if page := newBrowser(t).logInWith(p, address, "eve", nil); page.status != http.StatusUnauthorized || !strings.Contains(page.body, "has not verified your e-mail address") {
			t.Errorf("the login leads to a page with status %d: %s", page.status, page.body)
		}
	})
	t.Run("refuses an answer that this browser did not ask for", func(t *testing.T) {
		victim := newBrowser(t)
		page := victim.get(address + "/login/callback?code=x&state=y")
		if page.status != http.StatusUnauthorized || !strings.Contains(page.body, "has not begun this login") {
			t.Errorf("it leads to a page with status %d: %s", page.status, page.body)
		}
		victim.leave(address, nil)
		if page := victim.get(address + "/login/callback?code=x&state=y"); page.status != http.StatusUnauthorized || !strings.Contains(page.body, "belongs to another login") {
			t.Errorf("it leads to a page with status %d: %s", page.status, page.body)
		}
	})
	t.Run("begins only on a page of arbe", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/login/provider", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		if page := newBrowser(t).page(http.DefaultClient.Do(req)); page.status != http.StatusForbidden {
			t.Errorf("another site's form has status %d", page.status)
		}
	})
}

// TestAProviderThatIsAwayDelaysNothing starts a server whose provider does not exist.
func TestAProviderThatIsAwayDelaysNothing(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Login = setting.Defaults(oidc.Settings())
	cfg.Login.Issuer, cfg.Login.ClientID, cfg.Login.Name = "http://127.0.0.1:1", "arbe", "Example"
	s := start(t, cfg)
	b := newBrowser(t)
	if page := b.page(b.PostForm(s.URL()+"/login/provider", nil)); page.status != http.StatusServiceUnavailable || !strings.Contains(page.body, "Example does not answer") {
		t.Errorf("the login leads to a page with status %d: %s", page.status, page.body)
	}
	link, err := s.LoginLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if page := b.login(link); page.status != http.StatusOK {
		t.Errorf("a login link leads to a page with status %d", page.status)
	}
}

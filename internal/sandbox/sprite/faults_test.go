//go:build linux

package sprite_test

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sprites "github.com/superfly/sprites-go"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite"
	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

var (
	getting   = regexp.MustCompile(`^GET /v1/sprites/[^/]*$`)
	creating  = regexp.MustCompile(`^POST /v1/sprites$`)
	executing = regexp.MustCompile(`^GET /v1/sprites/.*/exec$`)
	anything  = regexp.MustCompile(``)
)

// create creates a box.
func create(t *testing.T, d sandbox.Driver, id string) string {
	t.Helper()
	ref, err := d.Create(t.Context(), sandbox.Spec{ID: id, Labels: sandbox.Labels{Installation: "here", House: "house"}})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return ref
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("%v has the code %q, want %q", err, fault.CodeOf(err), want)
	}
}

func TestWhatIsNotKnownIsNotGone(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account, func(c *sprite.Config) { c.ThrottleLimit = time.Millisecond })
	ref := create(t, d, "probed")
	probe := func(want sandbox.Liveness) {
		t.Helper()
		within := time.Minute
		if want == sandbox.Unknown {
			within = time.Second // an answer may never come
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if got, err := d.Probe(ctx, ref); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	for name, f := range map[string]spritetest.Fault{
		"the token is refused":        {On: getting, Status: http.StatusUnauthorized},
		"the account is refused":      {On: getting, Status: http.StatusForbidden},
		"there are too many requests": {On: getting, Status: http.StatusTooManyRequests},
		"the service fails":           {On: getting, Status: http.StatusBadGateway, Body: "<html>bad gateway</html>"},
		"the address is wrong":        {On: anything, Status: http.StatusNotFound, Body: "404 page not found"},
		"something else answers":      {On: anything, Status: http.StatusOK, Body: "{}"},
		"the connection is cut":       {On: getting},
		"the answer is cut":           {On: getting, Cut: true},
		"the answer never comes":      {On: getting, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			defer account.Fail(f)()
			probe(sandbox.Unknown)
		})
	}
	end := account.Fail(spritetest.Fault{On: getting, Status: http.StatusNotFound}) // but the list still has it
	probe(sandbox.Live)
	end()
	probe(sandbox.Live)
	account.Sleep(ref)
	probe(sandbox.Live)
	if got := account.Boxes()[ref].Status; got != "cold" {
		t.Errorf("probing woke it: %s", got)
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	probe(sandbox.Gone)
}

func TestACreationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    spritetest.Fault
		spec     sandbox.Spec
		prepare  func(*spritetest.Double)
		wantCode fault.Code
	}{
		"it never starts":          {prepare: (*spritetest.Double).NeverStart, wantCode: fault.Unavailable},
		"the organization is full": {prepare: func(a *spritetest.Double) { a.Limit(-1) }, wantCode: fault.Exhausted},
		"the token is refused":     {fault: spritetest.Fault{On: anything, Status: http.StatusUnauthorized, Times: 2}, wantCode: fault.Precondition},
		"the service fails":        {fault: spritetest.Fault{On: creating, Status: http.StatusInternalServerError}, wantCode: fault.Unavailable},
		"it has an image":          {spec: sandbox.Spec{Image: "debian:13"}, wantCode: fault.Precondition},
		"its policy is refused": {
			spec:     sandbox.Spec{Egress: egress.Policy{Mode: egress.None}},
			fault:    spritetest.Fault{On: regexp.MustCompile("/policy/network$"), Status: http.StatusForbidden},
			wantCode: fault.Unavailable, // the SDK does not say more
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := spritetest.New(t)
			d := open(t, account, func(config *sprite.Config) {
				if c.wantCode == fault.Unavailable { // the others do not wait
					config.StartLimit = 2 * time.Second
				}
			})
			if c.prepare != nil {
				c.prepare(account)
			}
			if c.fault.On != nil {
				account.Fail(c.fault)
			}
			c.spec.ID = "failing"
			_, err := d.Create(t.Context(), c.spec)
			wantCode(t, err, c.wantCode)
			if left := account.Boxes(); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

func TestACreationWhoseAnswerIsLostFindsItsBox(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	account.Fail(spritetest.Fault{On: creating, Times: 1, Cut: true})
	ref := create(t, d, "lost")
	if again := create(t, d, "lost"); again != ref || len(account.Boxes()) != 1 {
		t.Errorf("%s, then %s: %v", ref, again, account.Boxes())
	}
}

func TestTooManyRequestsWaitAsLongAsTheAnswerSays(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	for name, f := range map[string]spritetest.Fault{
		"of-creations": {On: creating, Header: http.Header{"Retry-After": {"2"}}},
		"of-programs":  {On: executing, Body: `{"error":"rate_limited","retry_after_seconds":2}`},
	} {
		f.Status, f.Times = http.StatusTooManyRequests, 1
		account.Fail(f)
		begin := time.Now()
		create(t, d, name)
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("%s: it waited %v", name, took)
		}
	}
	account.Fail(spritetest.Fault{On: creating, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}})
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "throttled-for-long"})
	wantCode(t, err, fault.Unavailable)
}

func TestACommandSurvivesConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	ref := create(t, d, "cut")
	for name, f := range map[string]spritetest.Fault{
		"its output is cut":   {Cut: true, Times: 2},
		"no output arrives":   {After: true, Times: 2},
		"it is not begun":     {Status: http.StatusServiceUnavailable, Times: 2},
		"nobody answers":      {Times: 2},
		"another one answers": {Status: http.StatusNotFound, Body: "no such host", Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f.On = executing
			account.Fail(f)
			var out bytes.Buffer
			result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "echo once >> ran; cat ran; rm ran; seq 3; exit 4"}, Stdout: &out})
			if err != nil || result.ExitCode != 4 || out.String() != "once\n1\n2\n3\n" {
				t.Errorf("%+v, %v: %q", result, err, out.String())
			}
		})
	}
}

func TestASpriteThatSleepsWakesWithItsFiles(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	ref := create(t, d, "asleep")
	if err := d.Upload(t.Context(), ref, "f", 0o644, strings.NewReader("kept")); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if err := d.Launch(t.Context(), ref, "ended-by-it", sandbox.Command{Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	account.Sleep(ref)
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"test", "-s", "f"}})
	if err != nil || result.ExitCode != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	var last sandbox.Record
	if err := d.Follow(t.Context(), ref, "ended-by-it", 0, func(r sandbox.Record) error { last = r; return nil }); err != nil || last.ExitCode != 137 || !last.BoxEnded {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestASpriteBelongsToItsInstallationAndHouse(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account, func(c *sprite.Config) { c.PerHouse = 2 })
	ref := create(t, d, "one")
	other, err := d.Create(t.Context(), sandbox.Spec{ID: "one", Labels: sandbox.Labels{Installation: "there"}})
	if err != nil || other == ref {
		t.Errorf("%q: %v", other, err)
	}
	for installation, want := range map[string]string{"here": ref, "there": other} {
		found, err := d.List(t.Context(), sandbox.Labels{Installation: installation})
		if err != nil || len(found) != 1 || found[0].Ref != want || found[0].ID != "one" {
			t.Errorf("%s: %+v, %v", installation, found, err)
		}
	}
	create(t, d, "two")
	_, err = d.Create(t.Context(), sandbox.Spec{ID: "three", Labels: sandbox.Labels{Installation: "here", House: "house"}})
	wantCode(t, err, fault.Exhausted)
	if len(account.Boxes()) != 3 {
		t.Errorf("the organization has %v", account.Boxes())
	}
}

// The server must be reachable with every policy, because a runner in a box works through its doors.
func TestAPolicyIsThatOfSprites(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	deny := sprites.NetworkPolicyRule{Domain: "*", Action: "deny"}
	allow := func(host string) sprites.NetworkPolicyRule {
		return sprites.NetworkPolicyRule{Domain: host, Action: "allow"}
	}
	const server = "https://Arbe.example.com:8443"
	none, listed := egress.Policy{Mode: egress.None}, egress.Policy{Mode: egress.Listed, Hosts: []string{"b.example:22", "*.a.example", "b.example"}}
	for id, c := range map[string]struct {
		policy egress.Policy
		door   string
		want   []sprites.NetworkPolicyRule
	}{
		"open":                   {policy: egress.Policy{Mode: egress.Open}, door: server},
		"none":                   {policy: none, door: server, want: []sprites.NetworkPolicyRule{deny, allow("arbe.example.com")}},
		"listed":                 {policy: listed, door: server, want: []sprites.NetworkPolicyRule{deny, allow("*.a.example"), allow("arbe.example.com"), allow("b.example")}},
		"listed-with-the-server": {policy: listed, door: "https://b.example", want: []sprites.NetworkPolicyRule{deny, allow("*.a.example"), allow("b.example")}},
		"server-at-an-address":   {policy: none, door: "http://203.0.113.7:8080", want: []sprites.NetworkPolicyRule{deny}},
		"server-without-address": {policy: none, want: []sprites.NetworkPolicyRule{deny}},
	} {
		ref, err := d.Create(t.Context(), sandbox.Spec{ID: id, Egress: c.policy, Door: c.door})
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		policy := account.Policy(ref)
		if policy == nil != (c.want == nil) || policy != nil && !slices.Equal(policy.Rules, c.want) {
			t.Errorf("%s: %+v", id, policy)
		}
	}
}

func TestASecretIsInNoRequestsAddress(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	d := open(t, account)
	ref := create(t, d, "secret")
	const secret = "s3cret-81d2"
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", `test "$TOKEN" = ` + secret}, Env: map[string]string{"TOKEN": secret}})
	if err != nil || result.ExitCode != 0 || len(account.Calls(secret)) > 0 || len(account.Calls(spritetest.Token)) > 0 {
		t.Errorf("%+v, %v: %v", result, err, account.Calls(secret))
	}
}

func TestWithoutATokenThereIsNoDriver(t *testing.T) {
	t.Parallel()
	_, err := sprite.Open(sprite.Config{})
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(fault.From(err).Next, "sprite_token") {
		t.Errorf("%v", err)
	}
}

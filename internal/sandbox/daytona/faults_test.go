//go:build linux

package daytona_test

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
)

var (
	getting   = regexp.MustCompile(`^GET /api/sandbox/0`)
	creating  = regexp.MustCompile(`^POST /api/sandbox$`)
	executing = regexp.MustCompile(`^POST /toolbox/.*/process/execute$`)
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
	account := daytonatest.New(t)
	d := open(t, account, func(c *daytona.Config) { c.ThrottleLimit = time.Millisecond })
	ref := create(t, d, "probed")
	probe := func(want sandbox.Liveness) {
		t.Helper()
		within := time.Minute
		if want == sandbox.Unknown {
			within = 500 * time.Millisecond // an answer may never come
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if got, err := d.Probe(ctx, ref); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	for name, f := range map[string]daytonatest.Fault{
		"the key is refused":          {Status: http.StatusUnauthorized},
		"the account is refused":      {Status: http.StatusForbidden},
		"there are too many requests": {Status: http.StatusTooManyRequests},
		"the service fails":           {Status: http.StatusBadGateway, Body: "<html>bad gateway</html>"},
		"something else answers":      {Status: http.StatusNotFound, Body: "404 page not found"},
		"the address is wrong":        {Status: http.StatusNotFound, Body: `{"statusCode":404,"message":"Cannot GET /sandbox/x","error":"Not Found"}`},
		"the connection is cut":       {},
		"the answer is cut":           {Cut: true},
		"the answer never comes":      {Hang: true},
		"the answer is something":     {Status: http.StatusOK, Body: "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			f.On = getting
			defer account.Fail(f)()
			probe(sandbox.Unknown)
		})
	}
	for _, state := range []struct {
		name   string
		fields map[string]any
		want   sandbox.Liveness
	}{
		{"started", nil, sandbox.Live},
		{"stopped", nil, sandbox.Live},
		{"archived", nil, sandbox.Live},
		{"restoring", nil, sandbox.Live},
		{"paused", nil, sandbox.Unknown}, // a state that newer servers may report
		{"error", map[string]any{"recoverable": true}, sandbox.Unknown},
		{"error", map[string]any{"recoverable": false}, sandbox.Gone},
		{"build_failed", nil, sandbox.Gone},
		{"started", map[string]any{"desiredState": "destroyed"}, sandbox.Gone},
		{"destroying", nil, sandbox.Gone}, // the double then no longer has it
		{"", nil, sandbox.Gone},
	} {
		if state.name != "" {
			account.SetState(ref, state.name, state.fields)
		}
		probe(state.want)
	}
}

func TestACreationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    daytonatest.Fault
		state    string
		spec     sandbox.Spec
		prepare  func(*daytonatest.Double)
		wantCode fault.Code
	}{
		"the box fails":               {state: "error", wantCode: fault.Precondition},
		"its image cannot be built":   {state: "build_failed", spec: sandbox.Spec{Image: "image:debian:13"}, wantCode: fault.Precondition},
		"it is deleted meanwhile":     {state: "destroying", wantCode: fault.NotFound},
		"it never starts":             {state: "pending_build", wantCode: fault.Unavailable},
		"the account is full":         {prepare: func(a *daytonatest.Double) { a.Limit(-1) }, wantCode: fault.Exhausted},
		"the key is refused":          {fault: daytonatest.Fault{On: anything, Status: http.StatusUnauthorized, Times: 2}, wantCode: fault.Precondition},
		"the service fails":           {fault: daytonatest.Fault{On: creating, Status: http.StatusInternalServerError}, wantCode: fault.Unavailable},
		"it cannot be prepared":       {fault: daytonatest.Fault{On: executing, Status: http.StatusOK, Body: `{"exitCode":1,"result":"arbe-cannot-prepare"}`}, wantCode: fault.Precondition},
		"the environment lists hosts": {spec: sandbox.Spec{Egress: egress.Policy{Mode: egress.Listed}}, wantCode: fault.Precondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := daytonatest.New(t)
			d := open(t, account, func(config *daytona.Config) {
				if c.wantCode == fault.Unavailable { // the others do not wait
					config.StartLimit = 2 * time.Second
				}
			})
			if c.state != "" {
				account.NewBoxes(c.state)
			}
			if c.prepare != nil {
				c.prepare(account)
			}
			if c.fault.On != nil {
				account.Fail(c.fault)
			}
			c.spec.ID = "failing"
			_, err := d.Create(t.Context(), c.spec)
			wantCode(t, err, c.wantCode)
			for _, ref := range account.Boxes() {
				if alive, _ := d.Probe(t.Context(), ref); alive != sandbox.Gone {
					t.Errorf("the box %s is left", ref)
				}
			}
		})
	}
}

func TestACreationWhoseAnswerIsLostFindsItsBox(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	account.Fail(daytonatest.Fault{On: creating, Times: 1, Cut: true})
	ref := create(t, d, "lost")
	if again := create(t, d, "lost"); again != ref || len(account.Boxes()) != 1 {
		t.Errorf("%s, then %s: %v", ref, again, account.Boxes())
	}
}

func TestTooManyRequestsWaitAsLongAsTheAnswerSays(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	account.Fail(daytonatest.Fault{On: creating, Times: 1, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After-Sandbox-Create": {"2"}}})
	begin := time.Now()
	create(t, d, "throttled")
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("it waited %v", took)
	}
	account.Fail(daytonatest.Fault{On: creating, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After-Sandbox-Create": {"3600"}}})
	begin = time.Now()
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "throttled-for-long"})
	wantCode(t, err, fault.Unavailable)
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it waited %v", took)
	}
}

func TestACommandSurvivesAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "cut")
	for name, f := range map[string]daytonatest.Fault{
		"cut":          {Cut: true, Times: 2},
		"dropped":      {After: true, Times: 2},
		"a time-out":   {After: true, Status: http.StatusRequestTimeout, Times: 1},
		"an error":     {After: true, Status: http.StatusBadGateway, Times: 2},
		"not begun":    {Status: http.StatusServiceUnavailable, Times: 2},
		"another host": {Status: http.StatusNotFound, Body: "no such host", Times: 1},
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

func TestABoxThatWasStoppedIsStartedByItsNextUse(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "stopped")
	if err := d.Upload(t.Context(), ref, "f", 0o644, strings.NewReader("kept")); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if err := d.Launch(t.Context(), ref, "ended-by-it", sandbox.Command{Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	account.SetState(ref, "stopped", nil) // as Daytona does
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"test", "-s", "f"}})
	if err != nil || result.ExitCode != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	var last sandbox.Record
	if err := d.Follow(t.Context(), ref, "ended-by-it", 0, func(r sandbox.Record) error { last = r; return nil }); err != nil || last.ExitCode != 137 || !last.BoxEnded {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestABoxBelongsToItsInstallationAndHouse(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account, func(c *daytona.Config) { c.PerHouse = 2 })
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
		t.Errorf("the account has %v", account.Boxes())
	}
}

func TestDaytonaEndsWhatNoServerDoes(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "abandoned")
	if stop, remove := account.Field(ref, "autoStopInterval"), account.Field(ref, "autoDeleteInterval"); stop != 60 || remove != 7*24*60 {
		t.Errorf("stopped after %v minutes, deleted after %v", stop, remove)
	}
	if _, err := d.Quarantine(t.Context(), ref); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if remove := account.Field(ref, "autoDeleteInterval"); remove != -1 {
		t.Errorf("in quarantine, it is deleted after %v minutes", remove)
	}
}

func TestASecretIsInNoRequestsAddress(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	d := open(t, account)
	ref := create(t, d, "secret")
	const secret = "s3cret-81d2"
	result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", `test "$TOKEN" = ` + secret}, Env: map[string]string{"TOKEN": secret}})
	if err != nil || result.ExitCode != 0 || len(account.Calls(secret)) > 0 {
		t.Errorf("%+v, %v: %v", result, err, account.Calls(secret))
	}
}

func TestWithoutAKeyThereIsNoDriver(t *testing.T) {
	t.Parallel()
	_, err := daytona.Open(daytona.Config{})
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(fault.From(err).Next, "daytona_api_key") {
		t.Errorf("%v", err)
	}
}

//go:build linux

package sandbox_test

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
	"github.com/arbe-dev/arbe/internal/secret"
)

// accountsBench is a bench whose house may bring its own key to a double of Daytona, where the operator has an account
// too.
type accountsBench struct {
	*bench
	daytona *daytonatest.Double
	secrets *secret.Secrets
	env     string
}

const operators, theirs = "first", "theirs" // accounts at the double

func setupAccounts(t *testing.T) *accountsBench {
	t.Helper()
	double := daytonatest.New(t)
	cfg := daytona.Config{APIKey: daytonatest.Key, URL: double.URL, PerHouse: 1, ThrottleLimit: 1}
	operator, err := daytona.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &accountsBench{bench: setupWith(t, nil, map[string]sandbox.Driver{"daytona": operator}), daytona: double}
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := secret.NewSealer(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	account := sandbox.Account{Secret: daytona.Account.Secret, Open: func(key string) (sandbox.Driver, error) { return daytona.Open(daytona.Account.Configure(cfg, key)) }}
	accounts := map[string]sandbox.Account{"daytona": account}
	b.secrets = secret.New(b.DB, sealer, sandbox.AccountUses(accounts), nil)
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"daytona": operator}, Accounts: accounts, Secrets: b.secrets,
		Installation: "here", Artifacts: b.artifacts, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = b.boxes.CloseAccounts(context.Background()) })
	b.env = b.environment(sandbox.Recipe{Driver: "daytona"})
	double.SetKey("dtn_theirs", theirs)
	return b
}

// set tries a key as the server does, and sets it if it is good.
func (b *accountsBench) set(key string) error {
	b.t.Helper()
	if _, err := b.boxes.TryAccount(b.t.Context(), b.scope, daytona.Account.Secret, key, false); err != nil {
		return err
	}
	b.put(key)
	return nil
}

// put sets a key without trying it.
func (b *accountsBench) put(key string) {
	b.t.Helper()
	if _, _, err := b.secrets.Set(b.t.Context(), b.scope, daytona.Account.Secret, []byte(key)); err != nil {
		b.t.Fatal(detail(err))
	}
}

// is checks how many boxes an account has.
func (b *accountsBench) is(account string, want int) {
	b.t.Helper()
	if got := b.daytona.BoxesOf(account); len(got) != want {
		b.t.Errorf("the account %s has %d boxes, want %d", account, len(got), want)
	}
}

func (b *accountsBench) mustSet(key string) {
	b.t.Helper()
	if err := b.set(key); err != nil {
		b.t.Fatal(detail(err))
	}
}

func TestBoxesOfAHouseWithAKeyAreInItsAccount(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	before := b.thread(b.env)
	old, _ := b.sh(before, "echo kept >file")
	b.is(operators, 1)

	b.mustSet("dtn_theirs")
	one, two := b.thread(b.env), b.thread(b.env)
	own, _ := b.sh(one, "true")
	b.sh(two, "true") // the operator's limit of one per house does not apply to another account
	b.is(operators, 1)
	b.is(theirs, 2)
	if old.OwnAccount || !own.OwnAccount {
		t.Errorf("the first box is in the house's own account: %v; the second: %v", old.OwnAccount, own.OwnAccount)
	}
	if _, out := b.sh(before, "cat file"); out != "kept\n" {
		t.Errorf("the box from before has %q", out)
	}
	if alive, err := b.boxes.Confirm(t.Context(), b.scope, own.ID); alive != sandbox.Live || err != nil {
		t.Errorf("the box in the house's account is %s, %v", alive, err)
	}
	if _, err := b.boxes.Discard(t.Context(), b.scope, own.ID); err != nil {
		t.Error(detail(err))
	}
	b.is(theirs, 1)

	list, err := b.boxes.OwnAccounts(t.Context(), b.scope)
	if want := (sandbox.OwnAccount{Driver: "daytona", Secret: "DAYTONA_API_KEY", Set: true, Operator: true, Sandboxes: 1}); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("the accounts are %+v, %v", list, err)
	}
}

func TestAHouseNeedsNoAccountOfTheOperator(t *testing.T) {
	t.Parallel()
	double := setupAccounts(t)
	none := fault.New(fault.Precondition, "this server has no sandboxes of Daytona", "ask the operator")
	account := sandbox.Account{Secret: daytona.Account.Secret, Open: func(key string) (sandbox.Driver, error) {
		return daytona.Open(daytona.Account.Configure(daytona.Config{URL: double.daytona.URL}, key))
	}}
	boxes := sandbox.NewResolver(sandbox.Config{
		DB: double.DB, Log: double.log, Threads: double.threads, Unavailable: map[string]error{"daytona": none},
		Accounts: map[string]sandbox.Account{"daytona": account}, Secrets: double.secrets, Installation: "here", Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = boxes.CloseAccounts(context.Background()) })
	th := double.thread(double.env)
	r := tryOn(t.Context(), double.bench, boxes, th, "", "true")
	wantCode(t, r.err, fault.Precondition)
	if next := fault.From(r.err).Next; !strings.Contains(next, "arbe secret set DAYTONA_API_KEY") {
		t.Errorf("without a key, the next step is %q", next)
	}
	double.put("dtn_theirs")
	if r := tryOn(t.Context(), double.bench, boxes, th, "", "true"); r.err != nil || r.ExitCode != 0 {
		t.Errorf("with a key: %d, %s", r.ExitCode, detail(r.err))
	}
	double.is(theirs, 1)
	var checks []string
	err := boxes.Diagnose(t.Context(), double.scope, double.env, false, func(c sandbox.Check) error {
		if c.Name == "driver" || c.Name == "create" || c.Name == "remove" {
			checks = append(checks, c.Name+" "+string(c.Result)+" "+c.Message)
		}
		return nil
	})
	if want := []string{"driver ok daytona, in the house's own account", "create ok ", "remove ok "}; err != nil || !slices.Equal(checks, want) {
		t.Errorf("a diagnosis says %q, %v", checks, err)
	}
	double.is(theirs, 1)
}

func TestAKeyIsTriedBeforeItIsSet(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	err := b.set("dtn_wrong")
	wantCode(t, err, fault.Invalid)
	if err != nil && strings.Contains(fault.From(err).Error()+fault.From(err).Next, "dtn_wrong") {
		t.Errorf("the error has the key: %v", err)
	}
	for _, key := range []string{"", "dtn theirs", "dtn_theirs\nX-Evil: 1", "schlüssel", strings.Repeat("k", 5000)} {
		if key != "" {
			wantCode(t, b.set(key), fault.Invalid)
		}
	}
	for name, f := range map[string]daytonatest.Fault{
		"too many requests": {Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}},
		"an error":          {Status: http.StatusBadGateway},
		"a cut connection":  {},
	} {
		f.On, f.Key = regexp.MustCompile(""), "dtn_theirs"
		end := b.daytona.Fail(f)
		if err := b.set("dtn_theirs"); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: %s", name, detail(err))
		}
		end()
	}
	if _, err := b.secrets.Value(t.Context(), b.scope.House, daytona.Account.Secret); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a key was set: %v", err)
	}
	b.mustSet("dtn_theirs")
	if said, err := b.boxes.TryAccount(t.Context(), b.scope, "OTHER_KEY", "anything at all", false); said != "" || err != nil {
		t.Errorf("another secret was tried: %q, %v", said, err)
	}
}

// Daytona stops an unused box by itself, and the next command starts it.
func TestTheRunningTimeOfABoxAtDaytona(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	th := b.thread(b.env)
	box, _ := b.sh(th, "true")
	m := &meters{bench: b.bench, thread: th, box: box.ID}
	m.forget()
	m.pass(5 * time.Minute)
	b.boxes.Sweep(t.Context())
	m.expect("while it runs", 5*time.Minute)
	m.pass(5 * time.Minute)
	b.daytona.SetState(box.Ref, "stopped", nil)
	b.boxes.Sweep(t.Context())
	b.boxes.Sweep(t.Context())
	m.expect("when Daytona has stopped it", 5*time.Minute)
	b.boxes.SaveBegins(box.ID) // so that the use is recorded at once
	b.sh(th, "true")
	m.pass(5 * time.Minute)
	b.boxes.Sweep(t.Context())
	m.expect("when a command has started it", 10*time.Minute)
	b.daytona.SetState(box.Ref, "destroyed", nil)
	b.boxes.Sweep(t.Context())
	m.expect("when it is gone", 10*time.Minute)
	if got := m.spent(); got.Unpriced != got.Time {
		t.Errorf("the double publishes no price, and of %v that of %v is unknown", got.Time, got.Unpriced)
	}
}

func TestAKeyIsReplacedByOneOfTheSameAccount(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.mustSet("dtn_theirs")
	th := b.thread(b.env)
	b.sh(th, "echo kept >file")

	b.daytona.SetKey("dtn_other", "another account")
	wantCode(t, b.set("dtn_other"), fault.Precondition)
	b.sh(th, "cat file")

	b.daytona.SetKey("dtn_rotated", theirs)
	b.mustSet("dtn_rotated")
	b.daytona.SetKey("dtn_theirs", "")
	if _, out := b.sh(th, "cat file"); out != "kept\n" {
		t.Errorf("with the new key, the box has %q", out)
	}

	// Without boxes there, a key of any account is accepted.
	if _, err := b.boxes.Discard(t.Context(), b.scope, b.on(th)); err != nil {
		t.Fatal(detail(err))
	}
	b.mustSet("dtn_other")
	b.sh(th, "true")
	b.is("another account", 1)
}

func TestADeletedKeyLeavesItsBoxes(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.mustSet("dtn_theirs")
	th := b.thread(b.env)
	box, _ := b.sh(th, "echo kept >file")

	err := b.secrets.Delete(t.Context(), b.scope, daytona.Account.Secret, false)
	if wantCode(t, err, fault.Precondition); err != nil && !strings.Contains(err.Error(), "sandbox "+box.ID) {
		t.Errorf("the error does not name the sandbox: %v", err)
	}
	if err := b.secrets.Delete(t.Context(), b.scope, daytona.Account.Secret, true); err != nil {
		t.Fatal(detail(err))
	}
	r := b.try(th, "true")
	if wantCode(t, r.err, fault.Precondition); fault.From(r.err).Reason() != fault.SecretMissing {
		t.Errorf("without the key: %s", detail(r.err))
	}
	if b.status(box.ID) != sandbox.StatusLive {
		t.Error("the box counts as dead")
	}
	b.is(theirs, 1)
	b.sh(b.thread(b.env), "true") // in the operator's account
	b.is(operators, 1)

	b.mustSet("dtn_theirs")
	if _, out := b.sh(th, "cat file"); out != "kept\n" {
		t.Errorf("with the key again, the box has %q", out)
	}

	// A box that nobody can reach is given up.
	if err := b.secrets.Delete(t.Context(), b.scope, daytona.Account.Secret, true); err != nil {
		t.Fatal(detail(err))
	}
	if _, err := b.boxes.Discard(t.Context(), b.scope, box.ID); err != nil {
		t.Error(detail(err))
	}
	if b.status(box.ID) != sandbox.StatusDead {
		t.Error("the box that was given up counts as live")
	}
}

// TestASweepSeesEveryAccount: a sweep finds the leftovers of a crash in the houses' own accounts. Nothing there
// affects another house.
func TestASweepSeesEveryAccount(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.mustSet("dtn_theirs")
	dead, _ := b.sh(b.thread(b.env), "true")
	live, _ := b.sh(b.thread(b.env), "true")
	b.exec("update sandboxes set status = 'dead', destroyed_at = now() where id = $1", dead.ID)

	// A box whose labels name the other house, and one of another installation.
	other := b.house()
	stranger, err := daytona.Open(daytona.Account.Configure(daytona.Config{URL: b.daytona.URL}, "dtn_theirs"))
	if err != nil {
		t.Fatal(err)
	}
	unknown := map[string]string{}
	for id, labels := range map[string]sandbox.Labels{
		"orphan": {Installation: "here", House: b.scope.House}, "claimed": {Installation: "here", House: other.House}, "elsewhere": {Installation: "there", House: b.scope.House},
	} {
		if unknown[id], err = stranger.Create(t.Context(), sandbox.Spec{ID: id, Labels: labels}); err != nil {
			t.Fatal(detail(err))
		}
	}
	b.boxes.Sweep(t.Context()) // sweeps the operator's account
	b.is(theirs, 5)
	b.boxes.SweepAccounts(t.Context())
	b.is(theirs, 4)
	for id, want := range map[string]string{"orphan": "stopped", "claimed": "started", "elsewhere": "started"} {
		if got := b.daytona.State(unknown[id]); got != want {
			t.Errorf("the box %s is %s, want %s", id, got, want)
		}
	}
	if got := b.daytona.State(live.Ref); got != "started" {
		t.Errorf("a live box is %s", got)
	}
	if err := stranger.Destroy(t.Context(), live.Ref); err != nil { // behind the server's back
		t.Fatal(detail(err))
	}
	b.boxes.Sweep(t.Context())
	if b.status(live.ID) != sandbox.StatusLive {
		t.Error("the sweep of the operator's account buries a sandbox of another account")
	}
	b.boxes.SweepAccounts(t.Context())
	if b.status(live.ID) != sandbox.StatusDead {
		t.Errorf("a sandbox whose box is gone is %s", b.status(live.ID))
	}
}

// TestAnAccountHoldsUpNoOther: while one account is silent, the boxes of others work and are swept, and a start asks
// none.
func TestAnAccountHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.mustSet("dtn_theirs")
	th := b.thread(b.env)
	b.sh(th, "true")
	orphan := func(id string) string {
		t.Helper()
		d, err := daytona.Open(daytona.Account.Configure(daytona.Config{URL: b.daytona.URL}, "dtn_theirs"))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := d.Create(t.Context(), sandbox.Spec{ID: id, Labels: sandbox.Labels{Installation: "here", House: b.scope.House}})
		if err != nil {
			t.Fatal(detail(err))
		}
		return ref
	}
	left := orphan("left")

	home := b.scope
	b.scope = b.house()
	b.daytona.SetKey("dtn_bad", "bad")
	b.put("dtn_bad")
	b.boxes.Sweep(t.Context()) // a server waits for it at its start, so it asks no account of a house
	if calls := b.daytona.CallsWith("dtn_bad"); calls != 0 {
		t.Errorf("the sweep of a start asked the account of a house %d times", calls)
	}
	end := b.daytona.Fail(daytonatest.Fault{On: regexp.MustCompile(""), Key: "dtn_bad", Hang: true})
	defer end()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); b.boxes.SweepAccounts(ctx) }()
	limited, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := b.daytona.Await(limited, func() bool { return b.daytona.State(left) == "stopped" }); err != nil {
		t.Error("the account of another house was not swept")
	}
	b.scope = home
	b.sh(th, "true")
	cancel()
	receive(t, done)
}

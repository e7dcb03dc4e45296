package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// The time limits of steps. Scripts have the limit of every preparation.
const (
	checkShort  = 30 * time.Second
	checkImage  = 10 * time.Minute
	checkCreate = 10 * time.Minute
	checkRemove = time.Minute
)

// Diagnose finds out whether an environment can build a sandbox now. It builds one, checks from inside which hosts it
// reaches, and deletes it. It calls to with each finished step, in order. The error is nil if all steps were done,
// however they ended.
//
// The sandbox itself is built from the beginning. With rebuild, older cached files are no longer used: the next
// sandboxes begin with the files of this one, or are built from the beginning too.
//
// The sandbox has a record while it exists, so it is found and deleted even if the server is killed. No thread gets
// it.
func (r *Resolver) Diagnose(ctx context.Context, scope db.Scope, id string, rebuild bool, to func(Check) error) error {
	find := r.Environment
	if rebuild {
		find = r.Environments.rebuild
	}
	env, err := find(ctx, scope, id)
	if err != nil {
		return err
	}
	release, err := r.builds.slots.acquire(ctx, scope.House)
	if err != nil {
		return err
	}
	defer release()
	d := &diagnosis{Resolver: r, scope: scope, env: env, to: to}
	return d.run(ctx)
}

// diagnosis is one diagnosis of an environment.
type diagnosis struct {
	*Resolver
	scope  db.Scope
	env    Environment
	to     func(Check) error
	failed bool

	// The results of steps that later steps use.
	recipe    Recipe
	driver    Driver
	own       bool // the box is in the house's own account
	received  secret.Received
	box       Sandbox
	unlock    func() // of the box's record; nil without one
	preparing preparing
	clock     clock
}

// diagnosing is a step. do returns its result, or the reason why it could not be done.
type diagnosing struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context) (Check, error)
}

func (d *diagnosis) run(ctx context.Context) (err error) {
	defer func() {
		if d.box.ID == "" {
			return
		}
		// The box is deleted even if nobody waits for the result any more.
		removed := d.check(context.WithoutCancel(ctx), diagnosing{"remove", checkRemove, d.remove})
		if err == nil {
			err = d.to(removed)
		}
	}()
	for _, step := range d.steps() {
		c := Check{Name: step.name, Result: CheckSkipped, Message: "a step before it failed"}
		if !d.failed {
			c = d.check(ctx, step)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.to(c); err != nil {
			return err
		}
	}
	return nil
}

// steps returns all steps except the last.
func (d *diagnosis) steps() []diagnosing {
	script := d.builds.preparation.stepTime
	steps := []diagnosing{
		{"recipe", checkShort, d.checkRecipe}, {"driver", checkShort, d.findDriver}, {"secrets", checkShort, d.receive},
		{"image", checkImage, d.pull}, {"create", checkCreate, d.create},
		{"git", script, d.prepared(func() error { return d.preparing.configureGit() })},
	}
	list := d.env.Recipe.checkouts()
	for _, repo := range list {
		steps = append(steps, diagnosing{cloneName(list, repo), script, d.prepared(func() error { return cmp.Or(d.preparing.clone(repo), d.preparing.noteCommit(repo)) })})
	}
	return append(steps,
		diagnosing{"defaults", 2 * script, d.prepared(d.findDefaults)},
		diagnosing{"setup", script, d.prepared(func() error { return cmp.Or(d.preparing.enterDirectory(), d.preparing.setUp()) })},
		diagnosing{"cache", script, d.cache},
		diagnosing{"start", script, d.prepared(func() error { return d.preparing.start() })},
		diagnosing{"egress", checkShort, d.checkEgress}, diagnosing{"door", checkShort, d.checkDoor})
}

// check does one step.
func (d *diagnosis) check(ctx context.Context, step diagnosing) Check {
	limited, cancel := context.WithTimeout(ctx, step.limit)
	defer cancel()
	began := time.Now()
	c, err := step.do(limited)
	c.Name, c.Duration = step.name, time.Since(began)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		c.Result, c.Message, c.Next = CheckFailed, fmt.Sprintf("it took longer than %v", step.limit), "try again; if it stays so, make the step smaller"
	case err != nil:
		f := fault.From(err)
		c.Result, c.Message, c.Next = CheckFailed, f.Message, f.Next
	case c.Result == "":
		c.Result = CheckOK
	}
	// If a step of the preparation has a message of several lines, the rest is its output.
	if line, rest, more := strings.Cut(c.Message, "\n"); more {
		c.Message = line
		if c.Output == "" {
			c.Output = rest
		}
	}
	d.failed = d.failed || c.Result == CheckFailed
	return c
}

func (d *diagnosis) checkRecipe(context.Context) (Check, error) {
	if _, err := d.env.Recipe.encode(); err != nil {
		return Check{}, err
	}
	recipe, over := d.maxima.reduce(d.env.Recipe)
	d.recipe = recipe
	if len(over) > 0 {
		return Check{Result: CheckWarning, Message: describe(over), Next: "ask for less in the environment, or ask the operator for more"}, nil
	}
	return Check{}, nil
}

func (d *diagnosis) findDriver(ctx context.Context) (Check, error) {
	err := d.db.In(ctx, d.scope, func(tx pgx.Tx) (err error) {
		d.own, err = d.drivers.chooseTx(ctx, tx, d.Sandboxes.q, d.recipe.driver())
		return err
	})
	if err != nil {
		return Check{}, err
	}
	driver, err := d.drivers.of(ctx, Sandbox{House: d.scope.House, Provider: d.recipe.driver(), OwnAccount: d.own})
	if err != nil {
		return Check{}, err
	}
	d.driver = driver
	// Listing also proves that a provider accepts the credentials.
	_, err = driver.List(ctx, Labels{Installation: d.builds.installation, House: d.scope.House, Environment: d.env.ID})
	c := Check{Message: d.recipe.driver()}
	if d.own {
		c.Message += ", in the house's own account"
	}
	return c, err
}

// receive checks the secrets that commands receive, and those that open repositories.
func (d *diagnosis) receive(ctx context.Context) (c Check, err error) {
	bound := slices.Clone(d.recipe.Secrets)
	for _, g := range d.recipe.Git {
		bound = append(bound, secret.Binding{Name: g.Secret, Required: true})
	}
	if len(bound) == 0 {
		return Check{Result: CheckSkipped, Message: "the environment binds none"}, nil
	}
	if d.builds.secrets == nil {
		return Check{}, fault.New(fault.Precondition, "this server keeps no secrets", "start it with a secret key")
	}
	all, err := d.builds.secrets.Receive(ctx, d.scope.House, bound)
	if err != nil {
		return Check{}, err
	}
	if d.received, err = d.builds.secrets.Receive(ctx, d.scope.House, d.recipe.Secrets); err != nil {
		return Check{}, err
	}
	var there, missing []string
	for _, b := range bound {
		if _, ok := all.Revisions[b.Name]; ok {
			there = append(there, b.Name)
		} else {
			missing = append(missing, b.Name)
		}
	}
	c.Message = strings.Join(there, ", ")
	if len(missing) > 0 {
		c.Result, c.Message = CheckWarning, "without "+strings.Join(missing, ", ")+", which may be missing"
		c.Next = "set it with: arbe secret set " + missing[0]
	}
	return c, nil
}

func (d *diagnosis) pull(ctx context.Context) (Check, error) {
	imaged, ok := d.driver.(Imaged)
	switch {
	case d.recipe.Image == "":
		return Check{Result: CheckSkipped, Message: "the environment uses the driver's base"}, nil
	case !ok:
		return Check{Result: CheckSkipped, Message: "the driver gets " + d.recipe.Image + " when it creates the sandbox"}, nil
	}
	return Check{Message: d.recipe.Image}, imaged.Pull(ctx, d.recipe.Image)
}

func (d *diagnosis) create(ctx context.Context) (Check, error) {
	err := d.db.In(ctx, d.scope, func(tx pgx.Tx) (err error) {
		d.box, err = d.Sandboxes.insertTx(ctx, tx, d.env, Sandbox{OwnAccount: d.own, Ephemeral: true})
		return err
	})
	if err != nil {
		return Check{}, err
	}
	// While the lock is held, no sweep considers the record abandoned.
	unlock, err := d.builds.locks.lock(ctx, d.box.ID)
	if err != nil {
		return Check{}, err
	}
	d.unlock = unlock
	ref, err := d.driver.Create(ctx, d.builds.spec(d.box, d.env, d.recipe, ""))
	d.box.Ref = ref
	if err == nil {
		d.clock.start(ctx, d.driver, ref)
	}
	d.preparing = preparing{
		preparation: d.builds.preparation, of: d.box, driver: d.driver, ref: ref, recipe: d.recipe, received: d.received,
		watch: newProgress(func(int64, []byte) {}), cached: d.builds.cached(d.driver, d.env, nil), commits: map[string]string{},
	}
	return Check{}, err
}

// prepared returns a step of the preparation as a step of the diagnosis.
func (d *diagnosis) prepared(do func() error) func(context.Context) (Check, error) {
	return func(ctx context.Context) (c Check, err error) {
		d.preparing.ctx, d.preparing.steps = ctx, nil
		err = do()
		for _, step := range d.preparing.steps {
			c.Output += step.Output
		}
		if err == nil && len(d.preparing.steps) == 0 {
			c.Result, c.Message = CheckSkipped, "there is nothing to do"
		}
		return c, err
	}
}

// findDefaults reads what the repository says about its sandboxes. If it asks for another box, that box takes the place
// of the one that was made.
func (d *diagnosis) findDefaults() error {
	p := &d.preparing
	if err := p.findDefaults(); !errors.Is(err, errOtherBox) {
		return err
	}
	if err := d.driver.Destroy(p.ctx, p.ref); err != nil {
		return err
	}
	d.clock.stop()
	d.recipe, _ = d.maxima.reduce(p.wanted)
	ref, err := d.driver.Create(p.ctx, d.builds.spec(d.box, d.env, d.recipe, ""))
	if err != nil {
		return err
	}
	d.clock.start(p.ctx, d.driver, ref)
	d.box.Ref, p.ref, p.recipe, p.chosen = ref, ref, d.recipe, true
	for _, do := range []func() error{p.configureGit, p.cloneAll, p.findDefaults} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// cache finds out whether the next sandbox begins with cached files.
func (d *diagnosis) cache(ctx context.Context) (Check, error) {
	d.preparing.ctx = ctx
	return d.preparing.cached.state(&d.preparing, d.builds.spec(d.box, d.env, d.recipe, "").Labels)
}

// tryHosts requests each of its arguments by https, all at once, and prints which ones answered. It requests the
// first one by http, and that must not answer: it is a cloud's metadata service.
const tryHosts = `command -v curl >/dev/null || { echo "no curl"; exit 0; }
echo "inside $(curl -s -m 5 -o /dev/null -w '%{http_code}' "http://$1/")"; shift
for host; do
	( if curl -s -m 15 -o /dev/null "https://$host/"; then echo "yes $host"; else echo "no $host"; fi ) &
done; wait`

// metadata is the address where clouds give a machine its credentials.
const metadata = "169.254.169.254"

// checkEgress checks from inside the sandbox which hosts it reaches.
func (d *diagnosis) checkEgress(ctx context.Context) (Check, error) {
	policy := d.maxima.egress(d.drivers.egress(d.recipe))
	c := Check{Message: policy.String()}
	if off, ok := d.driver.(Offline); ok && off.Offline() && policy.Mode != egress.None {
		return Check{Result: CheckWarning, Message: "sandboxes of this server have no network, whatever the environment allows",
			Next: "use a machine whose kernel has nf_tables, and the runtime runc"}, nil
	}
	hosts := hostsToTry(policy)
	var said tail
	result, err := d.driver.Exec(ctx, d.box.Ref, Command{
		Argv: append([]string{"/bin/sh", "-c", tryHosts, "try", metadata}, hosts...), Dir: "/", Stdout: &said, Merged: true, Timeout: checkShort,
	})
	if err != nil {
		return c, err
	}
	var missed []string
	reached := 0
	for line := range strings.Lines(said.String()) {
		kind, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch status, _ := strconv.Atoi(what); {
		case kind == "inside" && status >= 200 && status < 300:
			return c, fault.New(fault.Precondition, "the sandbox reaches "+metadata+", where clouds give out credentials", "close it in the provider's network")
		case kind == "yes":
			reached++
		case kind == "no" && what == "curl":
			return Check{Result: CheckWarning, Message: c.Message + "; not tried, because the image has no curl"}, nil
		case kind == "no":
			missed = append(missed, what)
		}
	}
	switch {
	case result.ExitCode != 0:
		c.Result, c.Message = CheckWarning, c.Message+"; it could not be tried"
	case len(missed) > 0:
		c.Result, c.Message = CheckWarning, fmt.Sprintf("%s; no answer from %s", c.Message, strings.Join(missed, ", "))
		c.Next = "check that the server's machine, or the provider, reaches them"
	case reached > 0:
		c.Message = fmt.Sprintf("%s; %d of its hosts answer", c.Message, reached)
	}
	return c, nil
}

// hostsToTry returns some hosts that a policy allows by https: named ones from its own list, and one from each set.
func hostsToTry(p egress.Policy) (hosts []string) {
	if p.Mode != egress.Listed {
		return nil
	}
	for _, host := range p.Hosts {
		if len(hosts) < 8 && !strings.ContainsAny(host, "*:") {
			hosts = append(hosts, host)
		}
	}
	for _, set := range p.Sets {
		hosts = append(hosts, egress.Hosts(set)[0])
	}
	return hosts
}

func (d *diagnosis) checkDoor(ctx context.Context) (Check, error) {
	door, err := doorOf(ctx, d.driver, d.box.Ref, d.door)
	if err != nil {
		return Check{}, err
	}
	h := Handle{Sandbox: d.box, driver: d.driver, recipe: d.recipe, maxima: d.maxima, door: door}
	err = h.CheckDoor(ctx)
	if fault.CodeOf(err) == fault.Precondition { // commands need no door, only coding agents do
		f := fault.From(err)
		return Check{Result: CheckWarning, Message: f.Message, Next: f.Next}, nil
	}
	return Check{Message: h.Door()}, err
}

// remove deletes the box and its record. If that fails, the record stays as a dead sandbox, and every sweep tries to
// destroy its box.
func (d *diagnosis) remove(ctx context.Context) (Check, error) {
	if d.unlock != nil {
		defer d.unlock()
	}
	var err error
	if d.box.Ref != "" {
		err = d.driver.Destroy(ctx, d.box.Ref)
	} else if d.unlock != nil { // a creation that was cut off may have made it
		err = d.builds.discardUnfinished(ctx, d.driver, d.box)
	}
	d.clock.stop()
	forget := d.db.In(ctx, d.scope, func(tx pgx.Tx) error {
		forget := d.Sandboxes.deleteTx
		if err != nil {
			forget = func(ctx context.Context, tx pgx.Tx, id string) error {
				return d.Sandboxes.markDeadTx(ctx, tx, id, knownStopped)
			}
		}
		if err := forget(ctx, tx, d.box.ID); err != nil {
			return err
		}
		return d.Sandboxes.countTx(ctx, tx, d.box, &d.clock, false)
	})
	return Check{}, errors.Join(err, forget)
}

package sandbox_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// obstinate is a cloud in which saving one box takes as long as it may, and saving boxes whose refs begin with its
// ref fails.
type obstinate struct {
	*cloud
	ref string
}

func (o *obstinate) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	saves := len(cmd.Argv) > 3 && cmd.Argv[3] == "save"
	if saves && ref == o.ref {
		<-ctx.Done()
		return sandbox.Result{}, ctx.Err()
	} else if saves && strings.HasPrefix(ref, o.ref+"-") {
		return sandbox.Result{}, fault.New(fault.Unavailable, "the box does not answer", "try again")
	}
	return o.cloud.Exec(ctx, ref, cmd)
}

// One house has a sandbox with a slow git, and more sandboxes that fail each time than one look used to find. Another
// house's sandbox is saved in the meantime, although it was used later.
func TestAHouseWhoseSandboxesAreNotSavedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	o := &obstinate{cloud: newCloud(t), ref: "none"}
	b := setupWith(t, o.cloud, map[string]sandbox.Driver{"cloud": o})
	b.artifacts = artifact.New(artifact.Config{DB: b.DB, Blobs: blob.InPostgres(b.DB), Logger: slog.New(slog.DiscardHandler)})
	b.boxes = b.server(b.drivers)
	bad, _ := b.sh(b.thread(b.environment(sandbox.Recipe{})), "true")
	o.ref = bad.Ref
	b.exec(`with s as (
			insert into sandboxes (house_id, environment_id, provider, provider_ref, status)
			select house_id, environment_id, provider, provider_ref || '-' || i, 'live' from sandboxes, generate_series(1, 150) i where id = $1 returning id, house_id)
		insert into sandbox_trees (sandbox_id, house_id, used_at) select id, house_id, now() - interval '1 day' from s`, bad.ID)
	b.scope = b.house()
	good, _ := b.sh(b.thread(b.environment(sandbox.Recipe{})), "true")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.boxes.SaveIdle(ctx) }()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		tree, err := b.boxes.Tree(t.Context(), b.scope, good.ID)
		if err != nil {
			t.Fatal(detail(err))
		}
		if !tree.SavedAt.IsZero() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it was not saved")
		}
	}
}

// A box that its provider has deleted is not saved again and again.
func TestASandboxThatIsGoneIsNotSavedAgain(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := setupWith(t, c, map[string]sandbox.Driver{"cloud": c})
	b.artifacts = artifact.New(artifact.Config{DB: b.DB, Blobs: blob.InPostgres(b.DB), Logger: slog.New(slog.DiscardHandler)})
	b.boxes = b.server(b.drivers)
	box, _ := b.sh(b.thread(b.environment(sandbox.Recipe{})), "true")
	c.lose(box.Ref)
	b.boxes.SaveIdle(t.Context())
	if got := b.status(box.ID); got != sandbox.StatusDead {
		t.Errorf("it is %s", got)
	}
}

// counted is a cloud that counts concurrent requests about its boxes.
type counted struct {
	*cloud
	now, most atomic.Int32
}

func (c *counted) Probe(ctx context.Context, ref string) (sandbox.Liveness, error) {
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.now.Add(-1)
	time.Sleep(5 * time.Millisecond) // as slow as a provider
	return c.cloud.Probe(ctx, ref)
}

// All houses share the operator's account at a provider, so a member cannot cause unlimited requests to it.
func TestManyReconcileAtTheSameTime(t *testing.T) {
	t.Parallel()
	c := &counted{cloud: newCloud(t)}
	b := setupWith(t, c.cloud, map[string]sandbox.Driver{"cloud": c})
	env := b.environment(sandbox.Recipe{})
	for range 20 {
		b.sh(b.thread(env), "true")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			list, err := b.boxes.Reconcile(t.Context(), b.scope)
			if err != nil || len(list) != 20 || list[0].Liveness != sandbox.Live || list[19].Liveness != sandbox.Live {
				t.Errorf("%d sandboxes are there (%v)", len(list), err)
			}
		})
	}
	all.Wait()
	if most := c.most.Load(); most > 8 {
		t.Errorf("the provider was asked for %d at the same time", most)
	}
}

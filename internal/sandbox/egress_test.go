package sandbox_test

import (
	"context"
	"slices"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// gatedCloud is a cloud whose boxes reach only what their policies allow.
type gatedCloud struct {
	*cloud
	set []egress.Policy
}

func (g *gatedCloud) SetEgress(_ context.Context, _ string, p egress.Policy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set = append(g.set, p)
	return nil
}

func (g *gatedCloud) OnRefusal(func(sandbox.Refusal)) {}

func TestAnEnvironmentWithoutAPolicyReachesPackagesAndSources(t *testing.T) {
	t.Parallel()
	gated := &gatedCloud{cloud: newCloud(t)}
	ungated := newCloud(t)
	b := setupWith(t, gated.cloud, map[string]sandbox.Driver{"cloud": gated, "ungated": ungated})
	created := map[string]egress.Policy{}
	for name, c := range map[string]*cloud{"cloud": gated.cloud, "ungated": ungated} {
		c.creating = func(_ context.Context, spec sandbox.Spec) error {
			created[name] = spec.Egress
			return nil
		}
	}
	sets := egress.Policy{Mode: egress.Listed, Sets: []string{"crates", "debian", "github", "go", "npm", "pypi"}}
	for driver, want := range map[string]egress.Policy{"cloud": sets, "ungated": {Mode: egress.Open}} {
		th := b.thread(b.environment(sandbox.Recipe{Driver: driver}))
		around, err := b.boxes.Surroundings(t.Context(), b.scope, th)
		if err != nil || !around.Egress.Equal(want) || around.Offline {
			t.Errorf("%s: the thread's commands will reach %+v (%v)", driver, around, err)
		}
		b.sh(th, "true")
		if !created[driver].Equal(want) {
			t.Errorf("%s: the box is created with %+v", driver, created[driver])
		}
	}
	if len(gated.set) == 0 || slices.ContainsFunc(gated.set, func(p egress.Policy) bool { return !p.Equal(sets) }) {
		t.Errorf("the commands run with %+v", gated.set)
	}
	if !sets.Allows("registry.npmjs.org", 443) || sets.Allows("example.com", 443) {
		t.Error("the sets allow other hosts")
	}
}

//go:build linux

package local_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

func TestAHouseTakesUpNoMoreOfTheDiskThanItMay(t *testing.T) {
	needRoot(t)
	d := newDriver(t, local.Config{Dir: t.TempDir(), HouseMB: 500})
	defer closeDriver(t, d)
	if !d.Capabilities().DiskLimit {
		t.Skip("boxes have no disks here")
	}
	of := func(house, id string, diskMB int) sandbox.Spec {
		return sandbox.Spec{ID: id, Labels: sandbox.Labels{House: house, Environment: "env"}, Limits: sandbox.Limits{DiskMB: diskMB}}
	}
	first := create(t, d, of("ada", "first", 2000)) // 384 MiB are held for it
	t.Run("and what that is can be asked for", func(t *testing.T) {
		create(t, d, of("bob", "of-bob", 64))
		houses, err := d.Occupied(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ada, bob := houses["ada"], houses["bob"]
		if len(ada.Boxes) != 1 || ada.Boxes["first"] < 380<<20 || ada.Boxes["first"] > 420<<20 || ada.Layers != 0 || ada.Most != 500<<20 {
			t.Errorf("one house takes up %+v", ada)
		}
		if len(bob.Boxes) != 1 || bob.Boxes["of-bob"] < 50<<20 || bob.Boxes["of-bob"] > 70<<20 {
			t.Errorf("the other one takes up %+v", bob)
		}
	})
	t.Run("a box is full when its house takes up all that it may", func(t *testing.T) {
		const write = "head -c 330M /dev/zero > one && for i in $(seq 5); do head -c 100M /dev/zero 2>/dev/null > two && exit; rm two; sleep 0.1; done; echo full"
		if got := sh(t, d, first, write); got != "full\n" {
			t.Errorf("it prints %q", got)
		}
		if got := sh(t, d, first, "rm one; echo works > f; cat f"); got != "works\n" {
			t.Errorf("afterwards it prints %q", got)
		}
	})
	t.Run("a further box is refused, and says what to do", func(t *testing.T) {
		second := create(t, d, of("ada", "second", 200))
		_, err := d.Create(t.Context(), of("ada", "third", 64))
		if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "it may take up 500 MiB") || !strings.Contains(fault.From(err).Next, "arbe sandbox list") {
			t.Errorf("it says %v; %s", err, fault.From(err).Next)
		}
		create(t, d, of("bob", "again-of-bob", 64))
		if err := d.Destroy(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		create(t, d, of("ada", "third", 64))
	})
	t.Run("what is cached for it gives way first", func(t *testing.T) {
		if !d.Guarantees().Layers {
			t.Skip("this machine's kernel cannot map the ids of a disk")
		}
		box := create(t, d, of("bob", "third-of-bob", 300))
		sh(t, d, box, fill(150))
		if err := d.KeepLayer(t.Context(), box, "key", nil); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if houses, err := d.Occupied(t.Context()); err != nil || houses["bob"].Layers < 150<<20 {
			t.Errorf("there are %+v (%v)", houses["bob"], err)
		}
		create(t, d, of("bob", "fourth-of-bob", 200)) // 428 MiB and the layer
		create(t, d, of("bob", "fifth-of-bob", 64))
		if houses, err := d.Occupied(t.Context()); err != nil || houses["bob"].Layers != 0 || len(houses["bob"].Boxes) != 5 {
			t.Errorf("there are %+v (%v)", houses["bob"], err)
		}
	})
}

package sandbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestTheEnvironmentOfAThreadsFirstSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	called, threads, houses := b.environment(sandbox.Recipe{}), b.environment(sandbox.Recipe{}), b.environment(sandbox.Recipe{})

	t.Run("is nobody's: that is a loud error that says how to set one", func(t *testing.T) {
		r := b.try(b.thread(""), "true")
		wantCode(t, r.err, fault.Precondition)
		for _, way := range []string{"with the command", "the thread's", "the house's default environment"} {
			if !strings.Contains(detail(r.err), way) {
				t.Errorf("it says %q, and not how to set one %q", r.err, way)
			}
		}
		if b.rows() != 0 || b.cloud.made() != 0 {
			t.Errorf("%d rows and %d boxes were made", b.rows(), b.cloud.made())
		}
	})
	b.exec("update houses set default_environment_id = $1", houses)
	for _, c := range []struct{ name, called, threads, want string }{
		{"is the house's", "", "", houses},
		{"is the thread's, before the house's", "", threads, threads},
		{"is the one the command names, before all others", called, threads, called},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := b.thread(c.threads)
			r := tryOn(t.Context(), b, b.boxes, th, c.called, "true")
			if r.err != nil || r.box.Environment != c.want {
				t.Fatalf("the sandbox is %+v (%s), want one of environment %s", r.box, detail(r.err), c.want)
			}
			made, err := b.cloud.List(t.Context(), sandbox.Labels{House: b.scope.House, Thread: th, Environment: c.want})
			if err != nil || len(made) != 1 || made[0].ID != r.box.ID {
				t.Errorf("the provider lists %+v under the labels of the thread (%v)", made, err)
			}
		})
	}
	t.Run("is never another house's", func(t *testing.T) {
		theirs := b.house()
		env, err := b.boxes.CreateEnvironment(t.Context(), theirs, "theirs", sandbox.Recipe{Driver: "cloud"})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, tryOn(t.Context(), b, b.boxes, b.thread(""), env.ID, "true").err, fault.NotFound)
	})
	t.Run("needs a driver that this server has, and what it lacks leaves no row", func(t *testing.T) {
		moved := b.environment(sandbox.Recipe{})
		b.exec(`update environments set config = '{"driver": "elsewhere"}' where id = $1`, moved)
		before, th := b.rows(), b.thread(moved)
		r := b.try(th, "true")
		wantCode(t, r.err, fault.Precondition)
		if !strings.Contains(detail(r.err), "elsewhere") || b.rows() != before {
			t.Errorf("it says %q, and %d rows were left", r.err, b.rows()-before)
		}
		recipe := sandbox.Recipe{Driver: "cloud"}
		if _, err := b.boxes.UpdateEnvironment(t.Context(), b.scope, moved, "", nil, &recipe); err != nil {
			t.Fatal(err)
		}
		b.sh(th, "true")
	})
}

func TestALiveSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{})
	mine, other := b.thread(env), b.thread(env)
	box, _ := b.sh(mine, "echo first > file")

	t.Run("is used again, with the files of the commands before", func(t *testing.T) {
		again, found := b.sh(mine, "cat file")
		if again.ID != box.ID || found != "first\n" {
			t.Errorf("the second command ran on %s and found %q, want %s and the file", again.ID, found, box.ID)
		}
	})
	t.Run("shows another thread nothing", func(t *testing.T) {
		theirs, found := b.sh(other, "ls")
		if theirs.ID == box.ID || found != "" {
			t.Errorf("the other thread is on %s and finds %q", theirs.ID, found)
		}
	})
	t.Run("refuses another environment, and takes its own", func(t *testing.T) {
		r := tryOn(t.Context(), b, b.boxes, mine, b.environment(sandbox.Recipe{}), "true")
		wantCode(t, r.err, fault.Precondition)
		if !strings.Contains(detail(r.err), box.ID) {
			t.Errorf("it says %q, want the sandbox by name", r.err)
		}
		if r := tryOn(t.Context(), b, b.boxes, mine, env, "true"); r.err != nil {
			t.Errorf("its own environment is refused: %v", r.err)
		}
	})
	t.Run("is another house's nothing", func(t *testing.T) {
		theirs := b.house()
		_, err := b.boxes.Sandbox(t.Context(), theirs, box.ID)
		wantCode(t, err, fault.NotFound)
		_, err = b.boxes.Destroy(t.Context(), theirs, box.ID)
		wantCode(t, err, fault.NotFound)
		err = b.boxes.Use(t.Context(), theirs, mine, "", func(sandbox.Handle) error { panic("it ran") })
		wantCode(t, err, fault.NotFound)
	})
}

func TestADeadSandboxIsResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{})
	first, second, apart := b.thread(env), b.thread(env), b.thread(env)
	dead, _ := b.sh(first, "touch lost")
	b.sh(apart, "true")
	b.share(second, first)
	alone := b.on(apart)
	if _, err := b.boxes.Destroy(t.Context(), b.scope, dead.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.threads.Update(t.Context(), b.scope, first, withEnvironment(b.environment(sandbox.Recipe{}))); err != nil {
		t.Fatal(err)
	}

	box, files := b.sh(second, "ls")
	if box.ID == dead.ID || box.Environment != env || files != "" {
		t.Errorf("the thread goes on in %+v with the files %q, want another sandbox of the same environment", box, files)
	}
	want := fmt.Sprintf("sandbox %s was gone; the thread continues in %s. Not restored: what was changed or made in the old sandbox, because it had not been saved.", dead.ID, box.ID)
	for name, th := range map[string]string{"the thread that noticed": second, "the thread that shared it": first} {
		if b.on(th) != box.ID {
			t.Errorf("%s is on %s, want %s", name, b.on(th), box.ID)
		}
		if entries := logged[entry.SandboxResumed](b, th); len(entries) != 1 || entries[0].Plain() != want {
			t.Errorf("the log of %s has %+v, want %+v once", name, entries, want)
		}
	}
	if b.on(apart) != alone || len(logged[entry.SandboxResumed](b, apart)) != 0 {
		t.Error("a thread on another sandbox was moved")
	}
	if now, _ := b.sh(first, "true"); now.ID != box.ID {
		t.Errorf("the other thread's next command ran on %s, want %s", now.ID, box.ID)
	}
}

func TestASandboxThatVanishedBehindOurBack(t *testing.T) {
	t.Parallel()
	t.Run("is buried and replaced, and the command runs once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		th := b.thread(b.environment(sandbox.Recipe{}))
		lost, _ := b.sh(th, "true")
		b.cloud.lose(lost.Ref)
		box, _ := b.sh(th, "true")
		if box.ID == lost.ID || b.status(lost.ID) != sandbox.StatusDead || b.cloud.made() != 2 {
			t.Errorf("it ran on %s; %s is %s; %d boxes were made", box.ID, lost.ID, b.status(lost.ID), b.cloud.made())
		}
		if entries := logged[entry.SandboxResumed](b, th); len(entries) != 1 {
			t.Errorf("the log has %+v", entries)
		}
	})
	t.Run("is buried by a sweep, if its provider says that it is gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		env := b.environment(sandbox.Recipe{})
		th := b.thread(env)
		lost, _ := b.sh(th, "true")
		there, _ := b.sh(b.thread(env), "true")
		b.cloud.lose(lost.Ref)
		b.cloud.mute = true
		b.boxes.Sweep(t.Context())
		if b.status(lost.ID) != sandbox.StatusLive || b.status(there.ID) != sandbox.StatusLive {
			t.Errorf("of a provider that does not answer, it is %s, and the other %s", b.status(lost.ID), b.status(there.ID))
		}
		b.cloud.mute = false
		b.server(map[string]sandbox.Driver{"another": b.cloud}).Sweep(t.Context())
		if b.status(lost.ID) != sandbox.StatusLive {
			t.Error("a server without its driver buries it")
		}
		b.server(b.drivers).Sweep(t.Context())
		if b.status(lost.ID) != sandbox.StatusDead || b.status(there.ID) != sandbox.StatusLive {
			t.Errorf("it is %s, and the other %s", b.status(lost.ID), b.status(there.ID))
		}
		b.sh(th, "true")
		if entries := logged[entry.SandboxResumed](b, th); len(entries) != 1 || b.on(th) == lost.ID {
			t.Errorf("the log has %+v", entries)
		}
	})
	t.Run("but is only missing in its provider's list stays as it is", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		box, _ := b.sh(b.thread(b.environment(sandbox.Recipe{})), "true")
		b.cloud.lists = func([]sandbox.Box) []sandbox.Box { return nil }
		b.boxes.Sweep(t.Context())
		if b.status(box.ID) != sandbox.StatusLive {
			t.Errorf("it is %s", b.status(box.ID))
		}
	})
	t.Run("is replaced only once for a command", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		th := b.thread(b.environment(sandbox.Recipe{}))
		lost, _ := b.sh(th, "true")
		b.cloud.lose(lost.Ref)
		tries := 0
		b.cloud.executing = func(context.Context, sandbox.Command) error {
			tries++
			return fault.New(fault.NotFound, "the box is gone", "make another")
		}
		wantCode(t, b.try(th, "true").err, fault.NotFound)
		if tries != 2 {
			t.Errorf("it was tried %d times, want 2", tries)
		}
	})
	for what, vanish := range map[string]func(b *bench, ref string){
		"that only does not answer stays as it is": func(b *bench, ref string) { b.cloud.lose(ref); b.cloud.mute = true },
		"that the provider says is there stays as it is": func(b *bench, _ string) {
			b.cloud.executing = func(context.Context, sandbox.Command) error {
				return fault.New(fault.NotFound, "the box is gone", "make another")
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th := b.thread(b.environment(sandbox.Recipe{}))
			box, _ := b.sh(th, "true")
			vanish(b, box.Ref)
			wantCode(t, b.try(th, "true").err, fault.Unavailable)
			if b.status(box.ID) != sandbox.StatusLive || b.on(th) != box.ID || b.cloud.made() != 1 {
				t.Errorf("it is %s, the thread is on %s, %d boxes were made", b.status(box.ID), b.on(th), b.cloud.made())
			}
		})
	}
}

func TestTheEndOfASandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{})

	t.Run("is final, and asking for it twice is no error", func(t *testing.T) {
		box, _ := b.sh(b.thread(env), "true")
		for range 2 {
			gone, err := b.boxes.Destroy(t.Context(), b.scope, box.ID)
			if err != nil || gone.Status != sandbox.StatusDead || gone.DestroyedAt.IsZero() {
				t.Errorf("destroyed, it is %+v (%v)", gone, err)
			}
		}
		if b.cloud.live() != 0 {
			t.Error("its machine is still there")
		}
	})
	t.Run("comes with the last thread on it, and not before", func(t *testing.T) {
		first, second := b.thread(env), b.thread(env)
		box, _ := b.sh(first, "true")
		b.share(second, first)
		for _, step := range []struct {
			thread string
			want   sandbox.Status
		}{{first, sandbox.StatusLive}, {second, sandbox.StatusDead}} {
			for _, left := range b.deleteThread(step.thread) {
				for range 2 { // a job may run twice
					if err := b.boxes.Reap(t.Context(), b.scope, left); err != nil {
						t.Error(err)
					}
				}
			}
			if got := b.status(box.ID); got != step.want {
				t.Errorf("it is %s, want %s", got, step.want)
			}
		}
		if b.cloud.live() != 0 {
			t.Error("its machine is still there")
		}
		if err := b.boxes.Reap(t.Context(), b.scope, "nosuchbox"); err != nil {
			t.Errorf("reaping one that never was: %v", err)
		}
	})
	t.Run("comes in a sweep for machines whose row is dead; those without a row are quarantined", func(t *testing.T) {
		th := b.thread(env)
		live, _ := b.sh(th, "true")
		dead, _ := b.sh(b.thread(env), "true")
		b.exec("update sandboxes set status = 'dead' where id = $1", dead.ID)
		for i, labels := range []sandbox.Labels{{House: b.scope.House}, {House: "nosuchhouse"}, {House: "' or true"}, {}} {
			if _, err := b.cloud.Create(t.Context(), sandbox.Spec{ID: fmt.Sprintf("rowless-%d", i), Labels: labels}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // at this start and at the next
			b.boxes.Sweep(t.Context())
			left, _ := b.cloud.List(t.Context(), sandbox.Labels{})
			if len(left) != 5 {
				t.Errorf("the sweep leaves %+v, want the live one and the four without a row", left)
			}
			for _, box := range left {
				if box.ID == dead.ID || box.Quarantined != (box.ID != live.ID) {
					t.Errorf("the sweep leaves %+v", box)
				}
			}
		}
		b.sh(th, "true")
	})
	t.Run("never comes in a sweep of another installation at the same provider", func(t *testing.T) {
		b := setup(t)
		here, there := b.installation("here"), b.installation("there")
		env := b.environment(sandbox.Recipe{})
		ours := tryOn(t.Context(), b, here, b.thread(env), "", "true")
		theirs := tryOn(t.Context(), b, there, b.thread(env), "", "true")
		b.exec("update sandboxes set status = 'dead' where id = any($1)", []string{ours.box.ID, theirs.box.ID})
		if _, err := b.cloud.Create(t.Context(), sandbox.Spec{ID: "rowless", Labels: sandbox.Labels{Installation: "there"}}); err != nil {
			t.Fatal(err)
		}
		here.Sweep(t.Context())
		left, _ := b.cloud.List(t.Context(), sandbox.Labels{})
		if len(left) != 2 || left[0].Quarantined || left[1].Quarantined || left[0].Labels.Installation+left[1].Labels.Installation != "therethere" {
			t.Errorf("the sweep leaves %+v, want all of the other installation's", left)
		}
	})
}

func TestASandboxIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{Setup: "echo set up"})
	there, _ := b.sh(b.thread(env), "true")
	lost, _ := b.sh(b.thread(env), "true")
	asked := func() map[string]sandbox.Liveness {
		t.Helper()
		list, err := b.boxes.Reconcile(t.Context(), b.scope)
		if err != nil {
			t.Fatal(detail(err))
		}
		found := map[string]sandbox.Liveness{}
		for _, r := range list {
			found[r.ID] = r.Liveness
		}
		return found
	}
	b.cloud.lose(lost.Ref)
	b.cloud.mute = true
	if found := asked(); found[lost.ID] != sandbox.Unknown || b.status(lost.ID) != sandbox.StatusLive {
		t.Errorf("of a provider that does not answer: %v", found)
	}
	b.cloud.mute = false
	if found := asked(); found[lost.ID] != sandbox.Gone || found[there.ID] != sandbox.Live || b.status(lost.ID) != sandbox.StatusDead || b.status(there.ID) != sandbox.StatusLive {
		t.Errorf("%v", found)
	}
	tree, err := b.boxes.Tree(t.Context(), b.scope, there.ID)
	if err != nil || len(tree.Steps) != 2 || tree.Steps[0].Name != "create" || tree.Steps[1].Name != "setup" || tree.Steps[1].Output != "set up" {
		t.Errorf("it was built by %+v (%v)", tree.Steps, err)
	}
}

package sandbox_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestTheOperatorsMaxima(t *testing.T) {
	t.Parallel()
	b := setup(t)
	greedy := sandbox.Recipe{
		Driver: "cloud", Limits: sandbox.Limits{MemoryMB: 1 << 20, DiskMB: 1 << 20, PIDs: 100_000, CPUs: 1024}, CommandTimeout: 24 * time.Hour,
	}
	before := b.thread(b.environment(greedy)) // the operator has set no maxima yet
	maxima := sandbox.Maxima{Limits: sandbox.Limits{MemoryMB: 1024, DiskMB: 2048, PIDs: 100, CPUs: 1.5}, CommandTime: time.Hour}
	b.boxes = sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"cloud": b.cloud}, Maxima: maxima,
		Logger: slog.New(slog.DiscardHandler),
	})
	var made sandbox.Spec
	b.cloud.creating = func(_ context.Context, spec sandbox.Spec) error { made = spec; return nil }
	var ran sandbox.Command
	b.cloud.executing = func(_ context.Context, cmd sandbox.Command) error { ran = cmd; return nil }

	env := b.environment(sandbox.Recipe{})
	for name, recipe := range map[string]sandbox.Recipe{
		"memory_mb": {Limits: sandbox.Limits{MemoryMB: 1025}}, "disk_mb": {Limits: sandbox.Limits{DiskMB: 2049}},
		"pids": {Limits: sandbox.Limits{PIDs: 101}}, "cpus": {Limits: sandbox.Limits{CPUs: 1.6}},
		"command_timeout": {CommandTimeout: time.Hour + time.Second},
	} {
		t.Run("refuse a recipe that asks for more: "+name, func(t *testing.T) {
			recipe.Driver = "cloud"
			_, createErr := b.boxes.CreateEnvironment(t.Context(), b.scope, "greedy", recipe)
			_, updateErr := b.boxes.UpdateEnvironment(t.Context(), b.scope, env, "", nil, &recipe)
			for _, err := range []error{createErr, updateErr} {
				wantCode(t, err, fault.Invalid)
				if !strings.Contains(detail(err), name) {
					t.Errorf("it says %s", detail(err))
				}
			}
		})
	}
	t.Run("let a recipe ask for all there is", func(t *testing.T) {
		all := sandbox.Recipe{Driver: "cloud", Limits: maxima.Limits, CommandTimeout: maxima.CommandTime}
		th := b.thread(b.environment(all))
		b.sh(th, "true")
		if made.Limits != maxima.Limits || ran.Timeout != maxima.CommandTime || len(logged[entry.EnvironmentPrepared](b, th)) != 0 {
			t.Errorf("made with %+v, ran with %v", made.Limits, ran.Timeout)
		}
	})
	t.Run("reduce a recipe of before, and the log says so", func(t *testing.T) {
		b.sh(before, "true")
		if made.Limits != maxima.Limits || ran.Timeout != maxima.CommandTime {
			t.Errorf("made with %+v, ran with %v", made.Limits, ran.Timeout)
		}
		entries := logged[entry.EnvironmentPrepared](b, before)
		if len(entries) != 1 || len(entries[0].Steps) != 1 || !strings.Contains(entries[0].Steps[0].Output, "memory_mb is 1024 instead of 1048576") {
			t.Errorf("the log says %+v", entries)
		}
	})
	t.Run("refuse a command that asks for more", func(t *testing.T) {
		ran = sandbox.Command{}
		for limit, code := range map[time.Duration]fault.Code{2 * time.Hour: fault.Invalid, time.Minute: ""} {
			_, _, err := execOn(t.Context(), b.boxes, b.scope, before, "", sandbox.Command{Argv: []string{"true"}, Timeout: limit})
			if code == "" && (err != nil || ran.Timeout != limit) || code != "" && fault.CodeOf(err) != code {
				t.Errorf("with a limit of %v: %s, ran with %v", limit, detail(err), ran.Timeout)
			}
		}
	})
}

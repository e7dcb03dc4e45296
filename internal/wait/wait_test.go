package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/wait"
)

func TestFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause, patience time.Duration // the context ends after its patience; zero is never
		ended           bool          // before the pause begins
		passes          bool
		takes           time.Duration
	}{
		"the pause passes":                      {pause: time.Hour, passes: true, takes: time.Hour},
		"the context ends first":                {pause: time.Hour, patience: time.Minute, takes: time.Minute},
		"the context ends later":                {pause: time.Minute, patience: time.Hour, passes: true, takes: time.Minute},
		"the context has ended":                 {pause: time.Hour, ended: true},
		"there is no pause":                     {passes: true},
		"the time is over":                      {pause: -time.Hour, passes: true},
		"no pause, but the context has ended":   {ended: true},
		"time is over, and the context as well": {pause: -time.Hour, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.patience > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.patience)
					defer cancel()
				}
				if c.ended {
					cancel()
				}
				began := time.Now()
				if passed := wait.For(ctx, c.pause); passed != c.passes || time.Since(began) != c.takes {
					t.Errorf("For returned %t after %s, not %t after %s", passed, time.Since(began), c.passes, c.takes)
				}
			})
		})
	}
}

package turn

import (
	"math"
	"testing"
	"time"
)

// Pauses grow up to the longest one, whatever is configured, and never end before the provider wants to be asked.
func TestAPauseGrowsUpToTheLongest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waits    Waits
		failures int
		asked    time.Duration
		least    time.Duration
		most     time.Duration
	}{
		{Waits{First: time.Second, Max: time.Minute}, 1, 0, time.Second / 2, time.Second},
		{Waits{First: time.Second, Max: time.Minute}, 4, 0, 4 * time.Second, 8 * time.Second},
		{Waits{First: time.Second, Max: time.Minute}, math.MaxInt, 0, 30 * time.Second, time.Minute},
		{Waits{First: 3 * time.Hour, Max: 1000 * time.Hour}, 50, 0, 500 * time.Hour, 1000 * time.Hour},
		{Waits{First: time.Hour, Max: time.Minute}, 1, 0, 30 * time.Second, time.Minute},
		{Waits{First: time.Second, Max: time.Minute}, 0, 0, time.Second / 2, time.Second},
		{Waits{First: time.Second, Max: time.Minute}, 1, 30 * time.Second, 30 * time.Second, 33 * time.Second},
	} {
		for range 100 {
			if got := c.waits.pause(c.failures, c.asked); got < c.least || got > c.most {
				t.Fatalf("%+v after %d failures, asked for %s: %s", c.waits, c.failures, c.asked, got)
			}
		}
	}
}

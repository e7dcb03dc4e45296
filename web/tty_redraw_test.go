package web

import (
	"slices"
	"testing"
	"testing/synctest"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/terminal"
)

// What a program draws before a tty has joined its output goes to the previous reader. The tty then shows nothing, so it changes
// the size of the terminal again.
func TestATTYChangesItsSizeUntilItsProgramDraws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drawsAfter int // sizes; 0 is never
		want       []uint32
	}{
		"at once":      {1, []uint32{24}},
		"the next one": {3, []uint32{24, 25, 24}},
		"never":        {0, []uint32{24, 25, 24, 25, 24, 25, 24, 25, 24, 25, 24, 25, 24}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tty := &tty{screen: terminal.New(24, 80), changed: make(chan struct{}), sizes: make(chan *arbev1.TerminalSize, 1), show: func(f func()) { f() }}
				ended := make(chan struct{})
				go func() { defer close(ended); tty.redraw(t.Context()) }()
				var rows []uint32
				for goesOn := true; goesOn; {
					select {
					case s := <-tty.sizes:
						if rows = append(rows, s.Rows); len(rows) == c.drawsAfter {
							_, _ = tty.Write([]byte("$ "))
						}
					case <-ended:
						goesOn = false
					}
				}
				if !slices.Equal(rows, c.want) {
					t.Errorf("the terminal had %d rows, want %d", rows, c.want)
				}
			})
		})
	}
}

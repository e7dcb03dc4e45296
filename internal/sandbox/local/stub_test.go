//go:build linux

package local

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// stalled is a socket whose reader does not run for a while after it set its first deadline.
type stalled struct {
	net.Conn
	pause time.Duration
}

func (s *stalled) SetReadDeadline(at time.Time) error {
	err := s.Conn.SetReadDeadline(at)
	time.Sleep(s.pause)
	s.pause = 0
	return err
}

func TestAStubThatIsSlowIsNotGivenUp(t *testing.T) {
	t.Parallel()
	ready := []byte{supervisor.Ready}
	failure := append(ready, make([]byte, supervisor.FailureSize)...)
	for name, c := range map[string]struct {
		says    []byte
		becomes time.Duration // when it becomes the command or ends; 0 for never
		between time.Duration // between two bytes
		stopped time.Duration // when it is stopped; 0 for never
		pause   time.Duration // of the server
		took    time.Duration
		late    bool
	}{
		"one that becomes the command at once":                            {says: ready, becomes: time.Millisecond, took: time.Millisecond},
		"one that becomes the command after 1.5 seconds":                  {says: ready, becomes: 1500 * time.Millisecond, took: 1500 * time.Millisecond},
		"one that becomes the command after 9.9 seconds":                  {says: ready, becomes: 9900 * time.Millisecond, took: 9900 * time.Millisecond},
		"one that is killed after 1.5 seconds":                            {becomes: 1500 * time.Millisecond, took: 1500 * time.Millisecond},
		"one that fails slowly":                                           {says: failure, between: 600 * time.Millisecond, took: 9 * 600 * time.Millisecond},
		"one that became the command while the server did not run":        {says: ready, becomes: time.Millisecond, pause: 2 * time.Second, took: 2 * time.Second},
		"one that did so, and the command was stopped":                    {says: ready, becomes: time.Millisecond, stopped: time.Second, pause: 2 * time.Second, took: 2 * time.Second},
		"one that did so, and the server did not run for a minute":        {says: ready, becomes: time.Millisecond, stopped: time.Second, pause: time.Minute, took: time.Minute},
		"one that is stopped is given up":                                 {stopped: time.Millisecond, took: stubPatience + stubEach, late: true},
		"one that is stopped when it is ready is given up":                {says: ready, stopped: time.Millisecond, took: stubPatience + stubEach, late: true},
		"one that is stopped after 3 seconds is given up":                 {says: ready, stopped: 3 * time.Second, took: 3*time.Second + stubEach, late: true},
		"one that is not stopped and becomes no command is also given up": {says: ready, took: startPatience + stubEach, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ours, theirs := net.Pipe()
				defer ours.Close()
				go func() {
					for _, b := range c.says {
						time.Sleep(c.between)
						if _, err := theirs.Write([]byte{b}); err != nil {
							return
						}
					}
					if c.becomes > 0 {
						time.Sleep(time.Until(began.Add(c.becomes)))
						theirs.Close()
					}
				}()
				said, err := hearStub(&stalled{ours, c.pause}, func() bool { return c.stopped > 0 && time.Since(began) >= c.stopped })
				if late := errors.Is(err, os.ErrDeadlineExceeded); string(said) != string(c.says) || late != c.late || (err != nil && !late) {
					t.Errorf("it said %q, %v", said, err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("that took %v, want %v", took, c.took)
				}
			})
		})
	}
}

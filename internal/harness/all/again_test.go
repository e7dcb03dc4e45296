package all_test

import (
	"slices"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
)

// An answer of pi's model that broke off is kept once: not if pi asks again, and otherwise when that is certain.
func TestAnAnswerThatBrokeOffIsKeptUnlessPiAsksAgain(t *testing.T) {
	t.Parallel()
	const (
		accepted = `{"type":"response","command":"prompt","success":true}`
		broken   = `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"The build"}],"stopReason":"error","errorMessage":"the connection was cut"}}`
		again    = `{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"the connection was cut"}`
		whole    = `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"The build is red."}],"stopReason":"stop"}}`
		settled  = `{"type":"agent_settled"}`
	)
	for name, c := range map[string]struct {
		lines, said []string
		rest        string
	}{
		"pi asks again":                  {[]string{accepted, broken, again, whole, settled}, []string{"The build is red."}, ""},
		"pi gives up":                    {[]string{accepted, broken, settled}, []string{"The build"}, ""},
		"pi goes on with something else": {[]string{accepted, broken, whole, settled}, []string{"The build", "The build is red."}, ""},
		"pi ends before it is settled":   {[]string{accepted, broken}, nil, "The build"},
		"pi ends before it asks again":   {[]string{accepted, broken, again}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := all.Named("pi")
			r := h.Read(harness.Job{}, "", "")
			var said []string
			for _, line := range c.lines {
				for _, e := range r.Line([]byte(line), 0) {
					if a, ok := e.Message.(entry.PiAssistant); ok {
						said = append(said, a.Text())
					}
				}
			}
			rest, _ := r.Decide(harness.Exit{Code: 1}).Rest.(entry.PiAssistant)
			if !slices.Equal(said, c.said) || rest.Text() != c.rest {
				t.Errorf("the log gets %q and in the end %q, want %q and %q", said, rest.Text(), c.said, c.rest)
			}
		})
	}
}

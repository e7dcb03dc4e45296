package main

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAPersonIsToldWhatTheirCommandWaitsFor(t *testing.T) {
	t.Parallel()
	waiting := entry.CommandWaiting{CommandID: "mine", For: entry.WaitThread, Limit: 8}
	for name, c := range map[string]struct {
		app  app
		says entry.Payload
		want string
	}{
		"by the thread's limit":   {says: waiting, want: "arbe: the command waits: a thread runs 8 commands at a time\n"},
		"not of another command":  {says: entry.CommandWaiting{CommandID: "other", For: entry.WaitServer}},
		"not of something else":   {says: entry.Chat{Text: "hello"}},
		"not when it is quiet":    {app: app{quiet: true}, says: waiting},
		"not beside JSON for it":  {app: app{json: true}, says: waiting},
		"by a house's limit of 1": {says: entry.CommandWaiting{CommandID: "mine", For: entry.WaitHouse, Limit: 1}, want: "arbe: the command waits: a house runs one command at a time\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			c.app.err = &said
			e := &execution{app: &c.app, req: &arbev1.RunCommandRequest{Id: "mine"}}
			e.waits(c.says)
			if said.String() != c.want {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

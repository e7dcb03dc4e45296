package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

func TestHelpExplainsEveryExitCode(t *testing.T) {
	t.Parallel()
	help := exitCodesTopic().Long
	codes := map[string]int{
		"Ctrl-C": exitInterrupted, "success": 0, "a bot that failed": exitBotFailed, "that was stopped": exitBotStopped, "that is limited": exitBotLimited,
		"no answer": exitNoAnswer, "an answer later": exitAnswerLater, "a closed pipe": exitPipe,
	}
	for _, c := range []fault.Code{
		fault.Invalid, fault.Unauthenticated, fault.Forbidden, fault.NotFound, fault.Exists, fault.Precondition, fault.Aborted,
		fault.OutOfRange, fault.Exhausted, fault.Unavailable, fault.Unimplemented, fault.Canceled, fault.DeadlineExceeded, fault.Internal,
	} {
		codes[string(c)] = c.ExitCode()
	}
	for name, code := range codes {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d {4}\S`, code)).MatchString(help) {
			t.Errorf("arbe help exit-codes does not explain %d (%s)", code, name)
		}
	}
}

func TestHelpShowsTheUsageOfAVerbOnce(t *testing.T) {
	t.Parallel()
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		usage, _, _ := strings.Cut(cmd.UsageString(), "\n\n")
		want := "Usage:\n  " + cmd.UseLine()
		if cmd.HasAvailableSubCommands() {
			want = "Usage:\n  " + cmd.CommandPath() + " [command]"
		}
		if cmd.Runnable() && strings.TrimSpace(usage) != want {
			t.Errorf("%s shows %q, want %q", cmd.CommandPath(), usage, want)
		}
	})
}

package main

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arbe-dev/arbe/internal/fault"
)

// destruction matches the names of verbs and flags that destroy something for good.
var destruction = regexp.MustCompile(`^(delete|destroy|remove|revoke|leave|drop|purge|forget|wipe)\b`)

// harmless lists flags whose names sound destructive but whose effect can be undone.
var harmless = []string{"arbe thread tag --remove", "arbe thread react --remove", "arbe notifications --remove"}

func TestAVerbThatDestroysAsksOrIsToldYes(t *testing.T) {
	t.Parallel()
	found := 0
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		flag := ""
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if destruction.MatchString(f.Name) && !slices.Contains(harmless, cmd.CommandPath()+" --"+f.Name) {
				flag = f.Name
			}
		})
		with, marked := cmd.Annotations[destroying]
		switch {
		case marked:
		case destruction.MatchString(cmd.Name()) && cmd.Runnable():
			t.Errorf("%s destroys, and is not marked so", cmd.CommandPath())
		case flag != "":
			t.Errorf("%s --%s destroys, and is not marked so", cmd.CommandPath(), flag)
		}
		if !marked {
			return
		}
		found++
		args := strings.Fields(cmd.CommandPath())[1:]
		for range strings.Count(cmd.Use, " ") { // its arguments are in capitals
			args = append(args, "something")
		}
		if with != "" {
			args = append(args[:len(strings.Fields(cmd.CommandPath()))-1], "--"+with)
		}
		// No server is running, so a verb that calls a server fails with another error.
		var out, said bytes.Buffer
		a := &app{in: strings.NewReader("y\n"), out: &out, err: &said, getenv: func(string) string { return "" }}
		if code := a.run(context.Background(), args); code != fault.Invalid.ExitCode() || !strings.Contains(said.String(), "pass --yes") || out.Len() > 0 {
			t.Errorf("arbe %s, without a terminal, ended with %d: %s%s", strings.Join(args, " "), code, said.String(), out.String())
		}
	})
	if found < 12 {
		t.Errorf("only %d verbs destroy: the test looks in the wrong place", found)
	}
}

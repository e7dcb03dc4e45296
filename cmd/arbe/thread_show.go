package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show [THREAD]",
		Short:             "Show a thread",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			t, err := a.getThread(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			return a.show(t.GetId(), viewThread(t), func() string { return a.describe(t) })
		}),
	}
}

// describe lists the data of a thread, one per line.
func (a *app) describe(t *arbev1.Thread) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	line("thread", t.GetId())
	line("name", title(t))
	line("status", t.GetStatus())
	if t.GetRunning() != nil {
		line("now", doing(t))
		line("working since", a.when(t.GetRunning().GetSince().AsTime()))
	}
	line("in", t.GetParent().GetKind()+" "+t.GetParent().GetId())
	line("forked from", origin(t))
	line("house", t.GetHouseId())
	line("driven by", t.GetAgentId())
	line("answering", t.GetAnsweringAgentId())
	line("environment", t.GetEnvironmentId())
	line("sandbox", t.GetSandboxId())
	line("entries", fmt.Sprint(t.GetTail()))
	line("last active", a.when(t.GetLastActivityAt().AsTime()))
	line("created", a.when(t.GetCreatedAt().AsTime()))
	w.Flush()
	return b.String()
}

// origin says where a thread was forked from. It returns "" if the thread is not a fork.
func origin(t *arbev1.Thread) string {
	from := t.GetForkedFrom()
	if from == nil {
		return ""
	}
	return fmt.Sprintf("%s at %d", first(from.GetThreadId(), "a deleted thread"), from.GetSeq())
}

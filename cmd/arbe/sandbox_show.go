package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show SANDBOX",
		Short:             "Show a sandbox",
		Args:              takes(1, 1, "the id of one sandbox"),
		ValidArgsFunction: a.proposesFirst(a.sandboxes),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, sandboxKind, "", args[0])
			if err != nil {
				return err
			}
			got, err := c.Sandboxes.GetSandbox(ctx, &arbev1.GetSandboxRequest{Id: id})
			if err != nil {
				return err
			}
			s := got.GetSandbox()
			return a.show(s.GetId(), viewSandbox(s), func() string {
				var b strings.Builder
				w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
				fmt.Fprintf(w, "sandbox\t%s\nstatus\t%s\nenvironment\t%s (%s)\ndriver\t%s\nhouse\t%s\nthreads\t%s\ndisk\t%s\nran\t%s\ncost\t%s\ncreated\t%s\nused\t%s\nsaved\t%s\n",
					s.GetId(), arbev1.Word(s.GetStatus()), entry.PrintableLine(s.GetUse().GetEnvironmentName()), s.GetEnvironmentId(), driverOf(s), s.GetHouseId(),
					threadsOn(s.GetUse()), diskText(s.GetUse().GetDiskBytes()), ranText(s.GetUse().GetRunning()), costNow(s.GetUse()), a.when(s.GetCreatedAt().AsTime()), a.whenever(s.GetUse().GetUsedAt()), a.whenever(s.GetUse().GetSavedAt()))
				if s.GetDestroyedAt() != nil {
					fmt.Fprintf(w, "deleted\t%s\n", a.when(s.GetDestroyedAt().AsTime()))
				}
				w.Flush()
				return b.String()
			})
		}),
	}
}

// costNow formats what a sandbox has cost, and what an hour costs now.
func costNow(u *arbev1.SandboxUse) string {
	text := costText(u.GetRunning())
	if hourly := u.GetHourlyMicros(); hourly > 0 {
		text += fmt.Sprintf(" (an hour of running costs $%.4f)", float64(hourly)/1e6)
	}
	return text
}

// threadsOn names the threads that are on a sandbox.
func threadsOn(u *arbev1.SandboxUse) string {
	var ids []string
	for _, t := range u.GetThreads() {
		ids = append(ids, t.GetThreadId())
	}
	if more := int(u.GetThreadCount()) - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("and %d more", more))
	}
	return first(strings.Join(ids, " "), "none")
}

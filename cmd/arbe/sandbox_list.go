package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxList(a *app) *cobra.Command {
	var house, driver string
	var all, reconcile bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes of a house, newest first",
		Long: "List the sandboxes of a house, newest first: those that exist or, with --all, the dead ones too. With --reconcile,\n" +
			"their providers are first asked which still exist; those that are gone count as dead from then on.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			if limit < 0 {
				return fault.New(fault.Invalid, "--limit is negative", "give how many sandboxes to list, or 0 for all")
			}
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			if reconcile {
				if err := a.reconcileSandboxes(ctx, c, in); err != nil {
					return err
				}
			}
			var rows []row
			var first *arbev1.ListSandboxesResponse
			for req := (&arbev1.ListSandboxesRequest{HouseId: in, PageSize: 200, Provider: driver, Existing: !all}); ; {
				page, err := c.Sandboxes.ListSandboxes(ctx, req)
				if err != nil {
					return err
				}
				if req.PageToken == "" {
					first = page
				}
				for _, s := range page.GetSandboxes() {
					if limit > 0 && len(rows) == limit {
						a.say("there are more; --limit 0 lists all")
						return a.listSandboxes(rows, first)
					}
					rows = append(rows, row{s.GetId(), viewSandbox(s), []string{
						s.GetId(), arbev1.Word(s.GetStatus()), entry.PrintableLine(s.GetUse().GetEnvironmentName()), driverOf(s), strconv.Itoa(int(s.GetUse().GetThreadCount())), diskText(s.GetUse().GetDiskBytes()),
						ranText(s.GetUse().GetRunning()), costText(s.GetUse().GetRunning()),
						a.whenever(s.GetUse().GetUsedAt()), a.when(s.GetCreatedAt().AsTime()),
					}})
				}
				if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
					return a.listSandboxes(rows, first)
				}
			}
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&all, "all", false, "list dead ones too")
	cmd.Flags().BoolVar(&reconcile, "reconcile", false, "first ask their providers which of them still exist")
	cmd.Flags().StringVar(&driver, "driver", "", "list only sandboxes of this driver, such as local or daytona")
	cmd.Flags().IntVar(&limit, "limit", 50, "the most to list; 0 means all")
	return cmd
}

// listSandboxes lists sandboxes, and says how much disk they use together and what all of the house cost this month.
func (a *app) listSandboxes(rows []row, house *arbev1.ListSandboxesResponse) error {
	if err := a.list(sandboxHeader, rows); err != nil {
		return err
	}
	if disk := house.GetDisk(); disk.GetMostBytes() > 0 {
		a.say("on the disks of machines: %s, and cached environments %s; the house may take up %s of each",
			diskText(disk.GetSandboxBytes()), diskText(disk.GetCachedBytes()), diskText(disk.GetMostBytes()))
	}
	if ran := house.GetSpending().GetRunning(); ran.GetCostMicros() > 0 || ran.GetUnpricedMs() > 0 {
		a.say("this month, sandboxes of the house ran for %s; by the prices of their providers, that cost %s", ranText(ran), spentWords(ran))
	}
	return nil
}

// spentWords formats what sandboxes cost, as the end of a sentence.
func spentWords(r *arbev1.SandboxRunning) string {
	unpriced := entry.Approximately(time.Duration(r.GetUnpricedMs()) * time.Millisecond)
	switch {
	case r.GetUnpricedMs() == 0:
		return dollarText(r.GetCostMicros())
	case r.GetCostMicros() == 0:
		return "an unknown amount for " + unpriced
	}
	return dollarText(r.GetCostMicros()) + ", and an unknown amount for " + unpriced
}

// diskText formats the disk space that something uses.
func diskText(n int64) string {
	if n == 0 {
		return "-"
	}
	if n < 10<<30 {
		return strconv.FormatInt((n+1<<20-1)>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>30, 10) + " GiB"
}

// reconcileSandboxes checks all sandboxes of a house with their providers, and reports changes.
func (a *app) reconcileSandboxes(ctx context.Context, c *arbe.Client, house string) error {
	done, err := c.Sandboxes.ReconcileSandboxes(ctx, &arbev1.ReconcileSandboxesRequest{HouseId: house})
	if err != nil {
		return err
	}
	for _, s := range done.GetSandboxes() {
		switch s.GetLiveness() {
		case arbev1.SandboxLiveness_SANDBOX_LIVENESS_GONE:
			a.say("sandbox %s is gone; its threads get another one with their next command", s.GetSandbox().GetId())
		case arbev1.SandboxLiveness_SANDBOX_LIVENESS_UNKNOWN:
			a.say("the provider of sandbox %s did not answer; the sandbox keeps its state", s.GetSandbox().GetId())
		}
	}
	return nil
}

var sandboxHeader = []string{"ID", "STATUS", "ENVIRONMENT", "DRIVER", "THREADS", "DISK", "RAN", "COST", "USED", "CREATED"}

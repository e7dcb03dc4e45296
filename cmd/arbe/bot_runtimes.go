package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// runtimeView is a runtime as JSON.
type runtimeView struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Version    string   `json:"version,omitempty"`
	Dialects   []string `json:"dialects,omitempty"`
	Steers     bool     `json:"steers"`
	Interrupts bool     `json:"interrupts"`
	Asks       bool     `json:"asks"`
	Limits     string   `json:"limits,omitempty"`
}

func botRuntimes(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "runtimes",
		Short: "List the runtimes that do bots' work, and what each cannot do",
		Long: "List the runtimes that do bots' work: arbe, whose turns run in the server, and the coding agents, which work in sandboxes.\n\n" +
			"STEERS: messages sent while it works reach its current work; otherwise they wait, and are its next prompt. INTERRUPTS: it\n" +
			"can be stopped without losing its work so far. ASKS: it can ask people for approval.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			list, err := c.Bots.ListRuntimes(ctx, &arbev1.ListRuntimesRequest{HouseId: in})
			if err != nil {
				return err
			}
			yes := map[bool]string{true: "yes", false: "no"}
			rows := make([]row, len(list.GetRuntimes()))
			for i, r := range list.GetRuntimes() {
				view := runtimeView{r.GetName(), r.GetTitle(), r.GetVersion(), r.GetDialects(), r.GetSteers(), r.GetInterrupts(), r.GetAsks(), r.GetLimits()}
				rows[i] = row{r.GetName(), view, []string{r.GetName(), strings.TrimSpace(r.GetTitle() + " " + r.GetVersion()), yes[r.GetSteers()], yes[r.GetInterrupts()], yes[r.GetAsks()], first(r.GetLimits(), "-")}}
			}
			return a.list([]string{"NAME", "PROGRAM", "STEERS", "INTERRUPTS", "ASKS", "LIMITS"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

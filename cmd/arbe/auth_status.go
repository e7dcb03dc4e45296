package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func authStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which server and credential are in use, and why",
		Long: "Show which server and which credential arbe commands use here, what chose them, and whether the server\n" +
			"accepts them. It never prints the credential. It fails when you are not logged in.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			view := struct {
				Host       string        `json:"host"`
				Why        string        `json:"why"`
				Credential string        `json:"credential,omitempty"` // where it is stored
				Profile    string        `json:"profile,omitempty"`
				Agent      *export.Agent `json:"agent,omitempty"`
			}{Host: t.Host, Why: t.Why, Credential: t.Credential, Profile: t.Profile}
			who, callErr := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
			if callErr == nil {
				agent := export.ViewAgent(who.GetAgent())
				view.Agent = &agent
			}
			err = a.show(view.Host, view, func() string {
				var b strings.Builder
				w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
				fmt.Fprintf(w, "server\t%s\n", view.Host)
				fmt.Fprintf(w, "chosen by\t%s\n", view.Why)
				fmt.Fprintf(w, "credential\t%s\n", first(view.Credential, "none"))
				if view.Agent != nil {
					fmt.Fprintf(w, "you are\t%s (%s)\n", export.OneLine(view.Agent.Name), view.Agent.Kind)
				}
				w.Flush()
				return b.String()
			})
			if err != nil {
				return err
			}
			return callErr
		}),
	}
}

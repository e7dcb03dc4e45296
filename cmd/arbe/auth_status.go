package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func authStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show who you are, which server and credential are in use, and why",
		Long: "Show which server and which credential arbe commands use here, what chose them, whether the server accepts\n" +
			"them, and who you are there. It never prints the credential. It fails when you are not logged in.",
		Example: "  arbe auth status --jq .agent.id",
		Args:    takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			view := authView{Host: t.Host, Why: t.Why, Credential: t.Credential, Profile: t.Profile}
			who, callErr := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
			if callErr == nil {
				agent := export.ViewAgent(who.GetAgent())
				view.Agent, view.Kind, view.HouseID, view.ThreadID = &agent, who.GetCredential(), who.GetHouseId(), who.GetThreadId()
				view.Scopes, view.ExpiresAt = who.GetScopes(), export.Optional(who.GetExpiresAt())
			}
			err = a.show(view.Host, view, func() string {
				var b strings.Builder
				w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
				fmt.Fprintf(w, "server\t%s\n", view.Host)
				fmt.Fprintf(w, "chosen by\t%s\n", view.Why)
				fmt.Fprintf(w, "credential\t%s\n", first(view.Credential, "none"))
				if view.Agent != nil {
					fmt.Fprintf(w, "you are\t%s (%s)\nagent\t%s\n", entry.PrintableLine(view.Agent.Name), view.Agent.Kind, view.Agent.ID)
				}
				switch {
				case view.ThreadID != "":
					fmt.Fprintf(w, "valid for\tthread %s: %s\n", view.ThreadID, strings.Join(view.Scopes, ", "))
				case view.HouseID != "":
					fmt.Fprintf(w, "valid for\thouse %s\n", view.HouseID)
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

type authView struct {
	Host       string        `json:"host"`
	Why        string        `json:"why"`
	Credential string        `json:"credential,omitempty"` // where it is stored
	Profile    string        `json:"profile,omitempty"`
	Agent      *export.Agent `json:"agent,omitempty"`

	Kind      string     `json:"credential_kind,omitempty"`
	HouseID   string     `json:"house_id,omitempty"`
	ThreadID  string     `json:"thread_id,omitempty"`
	Scopes    []string   `json:"scopes,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

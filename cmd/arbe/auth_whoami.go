package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func authWhoami(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are and which server you use",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			who, err := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
			if err != nil {
				return err
			}
			view := whoView{
				export.ViewAgent(who.GetAgent()), who.GetCredential(), who.GetHouseId(),
				who.GetThreadId(), who.GetScopes(), export.Optional(who.GetExpiresAt()), t.Host,
			}
			return a.show(view.ID, view, func() string {
				text := fmt.Sprintf("%s (%s) at %s\nagent %s, credential %s", entry.PrintableLine(view.Name), view.Kind, view.Host, view.ID, view.Credential)
				switch {
				case view.ThreadID != "":
					text += fmt.Sprintf(" for thread %s: %s", view.ThreadID, strings.Join(view.Scopes, ", "))
				case view.HouseID != "":
					text += " for house " + view.HouseID
				}
				return text
			})
		}),
	}
}

type whoView struct {
	export.Agent
	Credential string     `json:"credential"`
	HouseID    string     `json:"house_id,omitempty"`
	ThreadID   string     `json:"thread_id,omitempty"`
	Scopes     []string   `json:"scopes,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	Host       string     `json:"host"`
}

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// login makes a link that logs a browser in as the person who runs it.
func login(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "login",
		Short: "Print a link that logs your browser in",
		Long: "Print a link that logs a browser in as you. It works once, within a few minutes; whoever opens\n" +
			"it is you, so hand it to nobody.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			link, err := c.Agents.CreateLoginLink(ctx, &arbev1.CreateLoginLinkRequest{})
			if err != nil {
				return err
			}
			view := struct {
				URL       string    `json:"url"`
				ExpiresAt time.Time `json:"expires_at"`
			}{t.Host + link.GetPath(), link.GetExpiresAt().AsTime()}
			if err := a.show(view.URL, view, func() string { return view.URL }); err != nil {
				return err
			}
			a.say("open it once, before %s", view.ExpiresAt.Local().Format("15:04"))
			return nil
		}),
	}
}

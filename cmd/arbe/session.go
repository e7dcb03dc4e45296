package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sessionList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List where you are logged in: browsers and programs",
		Long: "List where you are logged in: browsers, and programs that arbe login gave a session. Each names itself, so do not rely\n" +
			"on the name. API keys are not sessions: see arbe key list.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			res, err := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{Sessions: true})
			if err != nil {
				return err
			}
			rows := make([]row, len(res.GetSessions()))
			for i, s := range res.GetSessions() {
				this := ""
				if s.GetCurrent() {
					this = "this one"
				}
				view := sessionView{s.GetId(), s.GetClient(), s.GetCreatedAt().AsTime(), export.Optional(s.GetLastUsedAt()), s.GetExpiresAt().AsTime(), s.GetCurrent()}
				rows[i] = row{s.GetId(), view, []string{s.GetId(), first(s.GetClient(), "unknown"), a.when(s.GetCreatedAt().AsTime()), a.whenever(s.GetLastUsedAt()), this}}
			}
			return a.list([]string{"ID", "PROGRAM", "LOGGED IN", "LAST USED", ""}, rows)
		}),
	}
}

func sessionRevoke(a *app) *cobra.Command {
	var yes, others bool
	cmd := &cobra.Command{
		Use:   "revoke [SESSION]",
		Short: "Log out a browser or a program or, with --others, all others",
		Long: "Log out a browser or a program. Its open connections end within a second. With --others, all sessions end but the one in\n" +
			"use; with an API key, all of them do. API keys stay valid: see arbe key revoke.",
		Example: "  arbe session revoke --others",
		Args:    takes(0, 1, "one session, by id"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if others == (len(args) > 0) {
				return fault.New(fault.Invalid, "name one session, or pass --others", "list them with: arbe session list")
			}
			req, what := &arbev1.EndSessionRequest{Which: &arbev1.EndSessionRequest_Others{Others: true}}, "all other sessions"
			if !others {
				if args[0], err = sessionNamed(ctx, c, args[0]); err != nil {
					return err
				}
				req.Which, what = &arbev1.EndSessionRequest_Id{Id: args[0]}, "session "+entry.PrintableLine(args[0])
			}
			if err := a.confirm(ctx, yes, "end %s?", what); err != nil {
				return err
			}
			res, err := c.Agents.EndSession(ctx, req)
			if err != nil {
				return err
			}
			return a.show(firstOf(args), endedView{res.GetEnded()}, func() string { return fmt.Sprintf("ended %d sessions", res.GetEnded()) })
		}),
	}
	destroys(cmd, &yes, "")
	cmd.Flags().BoolVar(&others, "others", false, "all sessions but the one in use")
	return cmd
}

// sessionNamed returns the id of the session whose id begins with at least four given characters. A session that is not in
// the list may have ended.
func sessionNamed(ctx context.Context, c *arbe.Client, beginning string) (id string, err error) {
	res, err := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{Sessions: true})
	id = beginning
	for _, s := range res.GetSessions() {
		switch {
		case len(beginning) < 4 || !strings.HasPrefix(s.GetId(), beginning):
		case id != beginning:
			return "", fault.Newf(fault.Invalid, "give more of the id", "more than one session begins with %q", beginning)
		default:
			id = s.GetId()
		}
	}
	return id, err
}

// sessionView is a session, as JSON.
type sessionView struct {
	ID         string     `json:"id"`
	Client     string     `json:"client,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Current    bool       `json:"current"`
}

type endedView struct {
	Ended int32 `json:"ended"`
}

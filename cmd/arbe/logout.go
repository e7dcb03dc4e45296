package main

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func logout(a *app) *cobra.Command {
	var revoke, yes bool
	cmd := &cobra.Command{
		Use:   "logout [PROFILE]",
		Short: "Log out from a server: delete its profile",
		Long: "Delete a profile with its credential from this machine; without PROFILE, the one in use. A session that came\n" +
			"from a login link ends at the server too. An API key stays valid, because other programs may use it, unless\n" +
			"--revoke ends it at the server.",
		Args:              takes(0, 1, "at most one profile"),
		ValidArgsFunction: a.profileNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := a.profiles()
			if err != nil {
				return err
			}
			name := first(firstOf(args), a.profileFlag, a.getenv("ARBE_PROFILE"), saved.Current)
			if name == "" || name == localProfile {
				return fault.New(fault.Invalid, "no profile is in use", "name one; arbe profile list shows them")
			}
			p, err := saved.named(name)
			if err != nil {
				return err
			}
			if revoke {
				if err := a.confirm(cmd.Context(), yes, "end the API key of profile %s for all programs that use it?", name); err != nil {
					return err
				}
			}
			a.chosen = &target{Host: p.Host, URL: p.Host, Profile: name, Why: "the profile", Credential: "profile " + name}
			ended, err := endCredential(cmd.Context(), p, revoke)
			if revoke && err != nil {
				return err // keep the profile, because its key is needed to try again
			}
			delete(saved.All, name)
			if saved.Current == name {
				saved.Current = ""
			}
			if err := saved.save(); err != nil {
				return err
			}
			view := logoutView{name, p.Host, ended}
			if err := a.show(name, view, func() string { return fmt.Sprintf("logged out from %s (profile %s)", p.Host, name) }); err != nil {
				return err
			}
			if !ended {
				a.say("its key may still be valid at the server; end it there with: arbe key revoke")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "end the API key at the server, for all programs that use it")
	destroys(cmd, &yes, "revoke")
	return cmd
}

// endCredential ends a profile's session and, with revoke, its API key. It reports whether the credential has ended.
func endCredential(ctx context.Context, p profile, revoke bool) (ended bool, err error) {
	c := arbe.New(p.Host, p.Token)
	who, err := c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
	switch {
	case connect.CodeOf(err) == connect.CodeUnauthenticated:
		return true, nil
	case err != nil:
		return false, err
	case who.GetCredential() == "session":
		_, err = c.Agents.EndSession(ctx, &arbev1.EndSessionRequest{})
	case revoke && who.GetCredential() == "api_key":
		_, err = c.Credentials.RevokeAPIKey(ctx, &arbev1.RevokeAPIKeyRequest{})
	case revoke:
		return false, fault.New(fault.Invalid, "the profile has a thread's token, which is not an API key", "leave out --revoke; arbe token revoke ends a thread's tokens")
	default:
		return false, nil
	}
	return err == nil, err
}

type logoutView struct {
	Profile string `json:"profile"`
	Host    string `json:"host"`
	// Ended reports that the credential is no longer valid.
	Ended bool `json:"ended"`
}

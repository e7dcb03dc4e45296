package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// login logs this command line in to a server, or a browser in to the server in use.
func login(a *app) *cobra.Command {
	var withToken bool
	cmd := &cobra.Command{
		Use:   "login [HOST]",
		Short: "Log in to a server, or print a link that logs your browser in",
		Long: "With HOST, log this command line in to a server: ask for an API key, check it, and keep it as a profile\n" +
			"that is used from now on. A login link of that server does too. The key is typed or, with --with-token, read\n" +
			"from stdin, and never given as an argument, where other users of this machine could read it.\n\n" +
			"Without HOST, print a link that logs a browser in as you at the server in use. It works once, within a few\n" +
			"minutes; whoever opens it is you, so give it to nobody.",
		Example: "  arbe login                                  # a link for the browser\n" +
			"  arbe login arbe.example.com\n" +
			"  arbe login https://arbe.example.com --profile work --with-token < key",
		Args: takes(0, 1, "at most one address of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if withToken {
					return fault.New(fault.Invalid, "no server is named to log in to", "write it as: arbe login https://arbe.example.com --with-token")
				}
				return a.calls(a.loginLink)(cmd, args)
			}
			return a.loginTo(cmd.Context(), args[0], withToken)
		},
	}
	cmd.Flags().BoolVar(&withToken, "with-token", false, "read the API key from stdin")
	return cmd
}

// loginLink prints a link that logs a browser in.
func (a *app) loginLink(ctx context.Context, c *arbe.Client, _ []string) error {
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
	}{t.URL + link.GetPath(), link.GetExpiresAt().AsTime()}
	if err := a.show(view.URL, view, func() string { return view.URL }); err != nil {
		return err
	}
	a.say("open it once, before %s", view.ExpiresAt.Local().Format("15:04"))
	return nil
}

// loginTo keeps a profile for a server, whose credential it asks for.
func (a *app) loginTo(ctx context.Context, address string, withToken bool) error {
	host, name, err := a.newProfile(address)
	if err != nil {
		return err
	}
	saved, err := a.profiles()
	if err != nil {
		return err
	}
	if old, ok := saved.All[name]; ok && old.Host != host {
		return fault.Newf(fault.Exists, "choose another name with --profile, or remove that one with: arbe logout "+name, "the profile %s is for %s", name, old.Host)
	}
	if u, err := url.Parse(host); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		a.say("warning: %s is not encrypted: whoever is between here and there can read your key", host)
	}
	a.chosen = &target{Host: host, URL: host, Profile: name, Why: "the argument"} // errors are about this server
	token, err := a.askToken(ctx, host, withToken)
	if err != nil {
		return err
	}
	if token, err = redeemed(ctx, host, token); err != nil {
		return err
	}
	who, err := arbe.New(host, token).Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
	if e, ok := errors.AsType[*connect.Error](err); ok && e.Code() == connect.CodeUnauthenticated {
		return fault.Newf(fault.Unauthenticated, "make a key there with: arbe key create NAME", "%s does not accept this key (%s)", host, e.Message()).Because(err)
	} else if err != nil {
		return err
	}
	saved.All[name] = profile{Host: host, Token: token}
	saved.Current = name
	if err := saved.save(); err != nil {
		return err
	}
	view := struct {
		Profile string    `json:"profile"`
		Host    string    `json:"host"`
		Agent   agentView `json:"agent"`
	}{name, host, viewAgent(who.GetAgent())}
	err = a.show(name, view, func() string {
		return fmt.Sprintf("logged in at %s as %s; this is profile %s, and in use", host, oneLine(view.Agent.Name), name)
	})
	a.say("arbe profile use %s goes back to the server of this machine", localProfile)
	return err
}

// newProfile returns the address that a person typed as a full one, and the name of its profile.
func (a *app) newProfile(address string) (host, name string, err error) {
	if !strings.Contains(address, "://") {
		scheme := "https://"
		if u, err := url.Parse("http://" + address); err == nil && isLoopback(u.Hostname()) {
			scheme = "http://"
		}
		address = scheme + address
	}
	if host, err = cleanHost(address); err != nil {
		return "", "", err
	}
	u, _ := url.Parse(host) // checked above
	name = first(a.profileFlag, strings.NewReplacer(":", "-", "[", "", "]", "").Replace(u.Host))
	return host, name, checkProfileName(name)
}

// askToken reads a credential from a terminal, which does not show it, or from stdin.
func (a *app) askToken(ctx context.Context, host string, withToken bool) (token string, err error) {
	in, _ := a.in.(*os.File)
	switch {
	case withToken:
		var text []byte
		text, err = io.ReadAll(io.LimitReader(a.in, maxPrivateFile))
		token = string(text)
	case isTerminal(a.in) && isTerminal(a.err):
		fmt.Fprintf(a.err, "API key for %s (arbe key create makes one there): ", host)
		before, _ := term.GetState(int(in.Fd()))
		token, err = answer(ctx, func() (string, error) {
			text, err := term.ReadPassword(int(in.Fd()))
			return string(text), err
		})
		fmt.Fprintln(a.err)
		if ctx.Err() != nil { // the wait was ended, but not the reading
			_ = term.Restore(int(in.Fd()), before)
			return "", err
		}
	default:
		return "", fault.New(fault.Invalid, "there is no terminal to ask for the key", "give the key on stdin, and pass --with-token")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fault.New(fault.Invalid, "the key cannot be read", "give it on stdin, and pass --with-token").Because(err)
	}
	line, _ := bufio.NewReader(strings.NewReader(strings.TrimSpace(token))).ReadString('\n')
	if token = strings.TrimSpace(line); token == "" {
		return "", fault.New(fault.Invalid, "the key is empty", "make one at the server with: arbe key create NAME")
	}
	return token, nil
}

// redeemed trades a login link of a server for a session there. What is no link is returned as it is.
func redeemed(ctx context.Context, host, token string) (string, error) {
	if !strings.Contains(token, "://") {
		return token, nil
	}
	link, err := url.Parse(token)
	if err != nil || link.Query().Get("token") == "" {
		return "", fault.New(fault.Invalid, "this is neither an API key nor a login link", "make a key at the server with: arbe key create NAME")
	}
	if link.Scheme+"://"+link.Host != host {
		return "", fault.Newf(fault.Invalid, "log in to that server, or use a link of this one", "the login link is for %s://%s, and not for %s", link.Scheme, link.Host, host)
	}
	res, err := arbe.New(host, "").Agents.RedeemLoginLink(ctx, &arbev1.RedeemLoginLinkRequest{Token: link.Query().Get("token")})
	return res.GetSession(), err
}

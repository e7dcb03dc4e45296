package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func login(a *app) *cobra.Command {
	var withToken bool
	var name string
	cmd := &cobra.Command{
		Use:   "login [HOST|LINK]",
		Short: "Log in to a server, or print a link that logs your browser in",
		Long: "With HOST, log this command line in to a server: print a code and the address of a page, and wait up to ten\n" +
			"minutes until you approve the code there. Any browser will do, on this machine or another one, in which you are\n" +
			"logged in at that server. The login is kept as a profile that is used from now on. With --json, the code and the\n" +
			"page are a line of JSON on stderr.\n\n" +
			"--with-token logs in with an API key, a login link or an invite link instead. It is read from stdin; a terminal\n" +
			"asks for it.\n\n" +
			"With the link of an invite, join its house: as the person of the profile of that server if there is one, else as\n" +
			"a new person, whose name arbe asks for unless --name gives it. A link works once. Other users of this\n" +
			"machine can read arguments. If you share it, run arbe login HOST --with-token and type the link.\n\n" +
			"A code and a link give a session of 30 days, unless the profile of an invite already has a credential. A key\n" +
			"lasts as long as you choose: arbe key create makes one.\n\n" +
			"Without HOST, print a link that logs a browser in to the current server as you. It works once, within a few\n" +
			"minutes. Whoever opens it acts as you, so give it to nobody.",
		Example: "  arbe login                                  # a link for the browser\n" +
			"  arbe login arbe.example.com                 # a code to approve in a browser\n" +
			"  arbe login https://arbe.example.com --profile work --with-token < key\n" +
			"  arbe login https://arbe.example.com --name Grace --with-token < invite-link",
		Args: takes(0, 1, "at most one address of a server or link"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return a.loginTo(cmd.Context(), args[0], withToken, strings.TrimSpace(name))
			case withToken:
				return fault.New(fault.Invalid, "the command names no server to log in to", "write it as: arbe login https://arbe.example.com --with-token")
			case name != "":
				return fault.New(fault.Invalid, "the command names no invite to join with", "write it as: arbe login LINK --name NAME")
			}
			return a.calls(a.loginLink)(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&withToken, "with-token", false, "log in with an API key or a link, from stdin")
	cmd.Flags().StringVar(&name, "name", "", "your name, when you join with an invite as a new person")
	return cmd
}

func (a *app) loginLink(ctx context.Context, c *arbe.Client, _ []string) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	link, err := c.Agents.CreateLoginLink(ctx, &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		return err
	}
	view := loginLinkView{t.URL + link.GetPath(), link.GetExpiresAt().AsTime()}
	if err := a.show(view.URL, view, func() string { return view.URL }); err != nil {
		return err
	}
	a.say("open it once, before %s", view.ExpiresAt.Local().Format("15:04"))
	return nil
}

// loginTo stores a profile for a server, named by its address or by one of its links. Without a link it logs in with a code or,
// withToken, with the credential that it asks for. A new person joins with name.
func (a *app) loginTo(ctx context.Context, address string, withToken bool, name string) error {
	l, linked := parseLink(address)
	if linked {
		if withToken {
			return fault.New(fault.Invalid, "a link and --with-token are both given", "leave out --with-token: the link is what you log in with")
		}
		address = l.host
		a.say("warning: other users of this machine may have seen the link, because it is an argument; arbe login %s --with-token asks for it", l.host)
	}
	host, profileName, err := a.newProfile(address)
	if err != nil {
		return err
	}
	saved, err := a.profiles()
	if err != nil {
		return err
	}
	if old, ok := saved.All[profileName]; ok && old.Host != host {
		return fault.Newf(fault.Exists, "choose another name with --profile, or remove that profile with: arbe logout "+profileName, "the profile %s is for %s", profileName, old.Host)
	}
	if u, err := url.Parse(host); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		a.say("warning: %s is not encrypted: anyone on the network path can read your key", host)
	}
	// Make error messages name this server.
	a.chosen = &target{Host: host, URL: host, Profile: profileName, Why: "the argument"}
	var in loggedIn
	if withToken {
		if in.token, err = a.askToken(ctx, host); err != nil {
			return err
		}
		if l, linked, err = linkOf(host, in.token); err != nil {
			return err
		}
	}
	switch {
	case linked && l.invite:
		in, err = a.join(ctx, l, saved, profileName, name)
	case name != "":
		err = fault.New(fault.Invalid, "--name is only for an invite link", "leave out --name")
	case linked:
		in, err = redeem(ctx, l, saved)
	case withToken:
		in.agent, err = holder(ctx, host, in.token)
	default:
		in, err = a.loginByCode(ctx, host, saved)
	}
	if err != nil {
		return err
	}
	// Make no call between using a link and saving the profile. The link works once, so the failure of such a call would lose
	// the session.
	if now, err := a.profiles(); err == nil { // a login takes minutes; another one may have ended meanwhile
		saved = now
	}
	saved.All[profileName] = profile{Host: host, Token: in.token}
	saved.Current = profileName
	if err := saved.save(); err != nil {
		return err
	}
	return a.showLogin(in, host, profileName)
}

// showLogin prints who has logged in, and where.
func (a *app) showLogin(in loggedIn, host, profileName string) error {
	view := loginView{Profile: profileName, Host: host, Agent: export.ViewAgent(in.agent), ExpiresAt: export.Optional(in.expires)}
	if in.house != nil {
		joined := viewHouse(in.house)
		view.House = &joined
	}
	err := a.show(profileName, view, func() string {
		text := fmt.Sprintf("logged in at %s as %s; this is profile %s, and in use", host, entry.PrintableLine(view.Agent.Name), profileName)
		if view.House != nil {
			text = fmt.Sprintf("joined %s (%s) as %s\n%s", entry.PrintableLine(view.House.Name), view.House.ID, view.House.Role, text)
		}
		return text
	})
	if view.ExpiresAt != nil {
		a.say("this session ends on %s; to stay logged in, create a key before that with: arbe key create NAME, and give it to: arbe login %s --profile %s --with-token",
			view.ExpiresAt.Local().Format("2006-01-02"), host, profileName)
	}
	a.say("arbe profile use %s switches back to the server of this machine", localProfile)
	return err
}

// holder returns the holder of an API key, or an error if the server does not accept the key.
func holder(ctx context.Context, host, key string) (*arbev1.Agent, error) {
	who, err := arbe.New(host, key).Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{})
	if e, ok := errors.AsType[*connect.Error](err); ok && e.Code() == connect.CodeUnauthenticated {
		return nil, fault.Newf(fault.Unauthenticated, "create a key there with: arbe key create NAME", "%s does not accept this key (%s)", host, e.Message()).Because(err)
	}
	return who.GetAgent(), err
}

// newProfile completes the address that a person typed, and returns it with the name of its profile.
func (a *app) newProfile(address string) (host, name string, err error) {
	if host, err = cleanHost(address); err != nil {
		return "", "", err
	}
	u, _ := url.Parse(host) // cannot fail, because cleanHost has parsed it
	name = first(a.profileFlag, strings.NewReplacer(":", "-", "[", "", "]", "").Replace(u.Host))
	return host, name, checkProfileName(name)
}

// askToken reads a credential from a terminal, which does not show it, or from stdin.
func (a *app) askToken(ctx context.Context, host string) (token string, err error) {
	if isTerminal(a.in) && isTerminal(a.err) {
		token, err = a.askHidden(ctx, "API key or link for %s (arbe key create makes a key there): ", host)
	} else {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(a.input(ctx), maxPrivateFile))
		token = string(text)
	}
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fault.New(fault.Invalid, "the key cannot be read", "give it on stdin").Because(err)
	}
	line, _ := bufio.NewReader(strings.NewReader(strings.TrimSpace(token))).ReadString('\n')
	if token = strings.TrimSpace(line); token == "" {
		return "", fault.New(fault.Invalid, "the key is empty", "make one at the server with: arbe key create NAME")
	}
	return token, nil
}

// redeem exchanges a login link for a session. It saves the profiles first: the link works once, so if they could not be
// written afterwards, the session would be lost.
func redeem(ctx context.Context, l link, saved *profiles) (loggedIn, error) {
	if err := saved.save(); err != nil {
		return loggedIn{}, err
	}
	res, err := arbe.New(l.host, "").Agents.RedeemLoginLink(ctx, &arbev1.RedeemLoginLinkRequest{Token: l.token})
	return loggedIn{token: res.GetSession(), expires: res.GetExpiresAt(), agent: res.GetAgent()}, err
}

type loginLinkView struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

type loginView struct {
	Profile   string       `json:"profile"`
	Host      string       `json:"host"`
	Agent     export.Agent `json:"agent"`
	House     *houseView   `json:"house,omitempty"`      // the house of the invite
	ExpiresAt *time.Time   `json:"expires_at,omitempty"` // the expiry of a link's session
}

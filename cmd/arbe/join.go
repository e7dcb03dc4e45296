package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// link is a link that a server made for a person: to log in or, for an invite, to join a house.
type link struct {
	host, token string
	invite      bool
}

// parseLink parses such a link. ok is false for any other text.
func parseLink(text string) (l link, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return l, false
	}
	path, ok := strings.CutSuffix(u.Path, "/login")
	if !ok {
		path, ok = strings.CutSuffix(u.Path, "/join")
		l.invite = ok
	}
	l.token = u.Query().Get("token")
	l.host = u.Scheme + "://" + u.Host + path
	return l, ok && l.token != ""
}

// linkOf returns the link that a person gave instead of a key. It must be a link of this server.
func linkOf(host, token string) (l link, ok bool, err error) {
	if !strings.Contains(token, "://") {
		return l, false, nil
	}
	if l, ok = parseLink(token); !ok {
		return l, false, fault.New(fault.Invalid, "this is neither an API key nor a login or invite link", "create a key at the server with: arbe key create NAME")
	}
	if l.host != host {
		return l, false, fault.Newf(fault.Invalid, "log in to that server, or use a link of this one", "the link is for %s, and not for %s", l.host, host)
	}
	return l, true, nil
}

// join joins the house of an invite, as the person of the profile or, without such a profile, as a new person with this name.
func (a *app) join(ctx context.Context, l link, saved *profiles, profileName, name string) (in loggedIn, err error) {
	credential := saved.All[profileName].Token
	if credential != "" && name != "" { // a new person's session would replace the credential
		return in, fault.Newf(fault.Invalid, "leave out --name to join as that person, or choose a profile for the new one with --profile",
			"the profile %s has a person at %s already", profileName, l.host)
	}
	offer, err := arbe.New(l.host, "").Houses.GetInvite(ctx, &arbev1.GetInviteRequest{Token: l.token})
	if err != nil {
		return in, unusableInvite(err)
	}
	a.say("%s invites you to join %s as %s", entry.PrintableLine(offer.GetInvitedBy()), entry.PrintableLine(offer.GetHouseName()), offer.GetRole())
	if credential == "" && name == "" {
		if name, err = a.askName(ctx); err != nil {
			return in, err
		}
	}
	if err := saved.save(); err != nil { // save before using the link, because it works once; see [redeem]
		return in, err
	}
	joined, err := arbe.New(l.host, credential).Houses.AcceptInvite(ctx, &arbev1.AcceptInviteRequest{Token: l.token, Name: name})
	if err != nil && credential == "" {
		return in, unusableInvite(err)
	} else if err != nil {
		return in, err
	}
	return loggedIn{first(joined.GetSession(), credential), joined.GetSessionExpiresAt(), joined.GetAgent(), joined.GetHouse()}, nil
}

// askName asks for the name of a new person.
func (a *app) askName(ctx context.Context) (string, error) {
	if !isTerminal(a.in) || !isTerminal(a.err) {
		return "", fault.New(fault.Invalid, "there is no terminal to ask for your name", "pass it with --name")
	}
	fmt.Fprint(a.err, "Your name: ")
	name, err := answer(ctx, func() (string, error) { return bufio.NewReader(a.in).ReadString('\n') })
	if ctx.Err() != nil {
		return "", err
	}
	if name = strings.TrimSpace(name); name == "" {
		return "", fault.New(fault.Canceled, "nobody joined: the name is empty", "run it again, and type your name; the link still works")
	}
	return name, nil
}

// unusableInvite explains that an invite cannot be used. The server's code is the code of a wrong credential, which would
// make arbe ask the person to log in.
func unusableInvite(err error) error {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != connect.CodeUnauthenticated {
		return err
	}
	return fault.New(fault.NotFound, e.Message(), "ask an owner of the house for a new link").Because(err)
}

// loggedIn is the result of logging in: a credential, its expiry if it is a session, the person, and the house, if any, that
// they were invited to.
type loggedIn struct {
	token   string
	expires *timestamppb.Timestamp
	agent   *arbev1.Agent
	house   *arbev1.House
}

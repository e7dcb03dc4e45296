package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// pollSlower is added to the interval between polls when the server says that it is too short.
	pollSlower = 5 * time.Second
	// pollFor is how long polls continue while the server cannot be reached: as long as a code is valid.
	pollFor = 10 * time.Minute
)

// loginByCode logs in with a code that the person approves on a page of the server. It saves the profiles first, as [redeem] does.
func (a *app) loginByCode(ctx context.Context, host string, saved *profiles) (loggedIn, error) {
	if err := saved.save(); err != nil {
		return loggedIn{}, err
	}
	c := arbe.New(host, "")
	begun, err := c.Agents.BeginDeviceLogin(ctx, &arbev1.BeginDeviceLoginRequest{Client: clientName()})
	if err != nil {
		return loggedIn{}, err
	}
	if err := a.showCode(host, begun); err != nil {
		return loggedIn{}, err
	}
	res, err := pollLogin(ctx, c, begun)
	return loggedIn{token: res.GetSession(), expires: res.GetExpiresAt(), agent: res.GetAgent()}, err
}

// clientName returns the name of this program for the page that approves the login.
func clientName() string {
	machine, err := os.Hostname()
	if machine = entry.PrintableLine(machine); err != nil || machine == "" {
		return "arbe"
	}
	name := []rune("arbe on " + machine)
	return string(name[:min(len(name), 100)])
}

// showCode shows the code and the page that approves it. It writes to stderr even with --quiet, because nobody can log in without
// them, and stdout has the result.
func (a *app) showCode(host string, begun *arbev1.BeginDeviceLoginResponse) error {
	page, code := host+entry.PrintableLine(begun.GetPath()), entry.PrintableLine(begun.GetUserCode())
	if a.json {
		type view struct {
			URL       string    `json:"url"`
			UserCode  string    `json:"user_code"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		return export.EncodeJSON(a.err, map[string]view{"login": {page, code, begun.GetExpiresAt().AsTime()}})
	}
	_, err := fmt.Fprintf(a.err, "Open this page in a browser, on any machine:\n\n  %s\n\nApprove the login there if the page shows this code: %s\n", page, code)
	a.say("This waits up to ten minutes. Ctrl-C ends it.")
	return err
}

// pollLogin waits until the person has answered, and returns the session.
func pollLogin(ctx context.Context, c *arbe.Client, begun *arbev1.BeginDeviceLoginResponse) (*arbev1.PollDeviceLoginResponse, error) {
	interval, began := begun.GetInterval().AsDuration(), time.Now()
	if interval <= 0 {
		interval = pollSlower
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interval):
		}
		res, err := c.Agents.PollDeviceLogin(ctx, &arbev1.PollDeviceLoginRequest{DeviceCode: begun.GetDeviceCode()})
		code := connect.CodeOf(err)
		switch late := ctx.Err() != nil || time.Since(began) > pollFor; {
		case err == nil && res.GetSession() != "":
			return res, nil
		case err == nil:
		case !late && code == connect.CodeResourceExhausted:
			interval += pollSlower
		case !late && (code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded):
			// The server may be restarting. The login survives that.
		default:
			return nil, err
		}
	}
}

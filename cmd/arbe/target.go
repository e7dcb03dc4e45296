package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// defaultHost is where arbe up serves when nobody says otherwise.
const defaultHost = "http://127.0.0.1:8420"

// target is a server and the credential to show it.
type target struct {
	Host  string `json:"host"`
	Token string `json:"token"`
}

// calls makes the body of a verb that talks to the server.
func (a *app) calls(verb func(ctx context.Context, c *arbe.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, err := a.target()
		if err != nil {
			return err
		}
		return verb(cmd.Context(), arbe.New(t.Host, t.Token), args)
	}
}

// target says which server, and as whom: the flag, the environment, what this machine's arbe up left in
// its data directory, the default. The token of the data directory is shown to the server that wrote
// it, and to no other.
func (a *app) target() (target, error) {
	local, err := a.localServer()
	if err != nil && a.getenv("ARBE_TOKEN") == "" {
		return target{}, err
	}
	t := target{Host: first(a.hostFlag, a.getenv("ARBE_HOST"), local.Host, defaultHost), Token: a.getenv("ARBE_TOKEN")}
	u, err := url.Parse(t.Host)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return target{}, fault.Newf(fault.Invalid, "set ARBE_HOST to an address such as "+defaultHost, "%q is not the address of a server", t.Host)
	}
	t.Host = strings.TrimRight(t.Host, "/")
	if t.Token == "" && t.Host == strings.TrimRight(local.Host, "/") {
		t.Token = local.Token
	}
	return t, nil
}

// localServer reads what this machine's arbe up left for us; the zero target when there is none.
func (a *app) localServer() (t target, err error) {
	path := filepath.Join(a.dataDir(), "cli.json")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return target{}, nil
	case err != nil:
		return target{}, fault.Newf(fault.Forbidden, "run arbe as the user who runs arbe up, or set ARBE_TOKEN", "cannot read %s", path).Because(err)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return target{}, fault.Newf(fault.Precondition, "start arbe up again: it writes the file anew", "%s is damaged", path).Because(err)
	}
	return t, nil
}

// dataDir is the data directory of this machine's arbe up.
func (a *app) dataDir() string { return first(a.dataDirFlag, a.getenv("ARBE_DATA_DIR"), ".arbe") }

// isLocal says whether the server is meant to run on this machine.
func (t target) isLocal() bool {
	u, err := url.Parse(t.Host)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// first is the first of the values that is set.
func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

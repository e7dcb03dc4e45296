package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// defaultHost is the default address of arbe up.
const defaultHost = "http://127.0.0.1:8420"

// calls returns the function of a verb that calls the server.
func (a *app) calls(verb func(ctx context.Context, c *arbe.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, err := a.target()
		if err != nil {
			return err
		}
		return verb(cmd.Context(), arbe.New(t.Host, t.Token), args)
	}
}

// target decides which server to call, and with which credential. The first of these that names a server wins:
//
//  1. the flags --host, --profile, --data-dir
//  2. ARBE_HOST, ARBE_PROFILE, ARBE_DATA_DIR
//  3. the profile that was chosen with arbe login or arbe profile use
//  4. the server of .arbe in the working directory
//  5. the server that runs on this machine as this user
//
// The credential is ARBE_TOKEN, unless --profile names a profile. Otherwise it is the credential stored for this server. A
// stored credential must not go to another host, which could use it.
func (a *app) target() (target, error) {
	if a.chosen == nil {
		t, err := a.choose()
		if err != nil {
			return target{}, err
		}
		if token := a.getenv("ARBE_TOKEN"); token != "" && a.profileFlag == "" {
			t.Token, t.Credential = token, "ARBE_TOKEN"
		}
		a.chosen = &t
	}
	return *a.chosen, nil
}

// choose is like [app.target], but ignores ARBE_TOKEN.
func (a *app) choose() (target, error) {
	if a.hostFlag != "" && a.profileFlag != "" {
		return target{}, fault.New(fault.Invalid, "--host and --profile are both given", "give only one of them: a profile already names its host")
	}
	for _, from := range []struct {
		value, name string
		choose      func(value, why string) (target, error)
	}{
		{a.hostFlag, "--host", a.atHost},
		{a.profileFlag, "--profile", a.ofProfile},
		{a.dataDirFlag, "--data-dir", a.ofDataDir},
		{a.getenv("ARBE_HOST"), "ARBE_HOST", a.atHost},
		{a.getenv("ARBE_PROFILE"), "ARBE_PROFILE", a.ofProfile},
		{a.getenv("ARBE_DATA_DIR"), "ARBE_DATA_DIR", a.ofDataDir},
	} {
		if from.value != "" {
			return from.choose(from.value, from.name)
		}
	}
	saved, err := a.profiles()
	if err != nil {
		return target{}, err
	}
	if saved.Current != "" {
		return a.ofProfile(saved.Current, "the profile in use")
	}
	return a.onThisMachine()
}

// atHost returns the server at an address, with the credential stored for this address, if any.
func (a *app) atHost(host, why string) (target, error) {
	host, err := cleanHost(host)
	if err != nil {
		return target{}, err
	}
	t := target{Host: host, URL: host, Why: why}
	if s, err := serverOf(a.dataDir(), a.namesDataDir()); err == nil && s.runs && s.Host == host {
		t.Token, t.Credential = s.Token, s.origin()
		return t, nil
	} else if err != nil && !errors.Is(err, errNoServer) && a.namesDataDir() && a.getenv("ARBE_TOKEN") == "" {
		return target{}, err
	}
	saved, err := a.profiles()
	if err != nil {
		if a.getenv("ARBE_TOKEN") != "" {
			return t, nil // the token is known, so the profiles are not needed
		}
		return target{}, err
	}
	// Several profiles may have this host. The current profile comes first, because the person has chosen it.
	names := saved.names()
	if saved.Current != "" {
		names = append([]string{saved.Current}, names...)
	}
	for _, name := range names {
		if p := saved.All[name]; p.Host == host {
			t.Token, t.Profile, t.Credential = p.Token, name, "profile "+name
			return t, nil
		}
	}
	for _, s := range a.runningServers() {
		if s.Host == host {
			t.Token, t.Credential = s.Token, s.origin()
		}
	}
	return t, nil
}

// ofProfile returns the server of a profile.
func (a *app) ofProfile(name, why string) (target, error) {
	if name == localProfile {
		return a.onThisMachine()
	}
	saved, err := a.profiles()
	if err != nil {
		return target{}, err
	}
	p, err := saved.named(name)
	if err != nil {
		return target{}, err
	}
	host, err := cleanHost(p.Host)
	if err != nil {
		return target{}, err
	}
	return target{Host: host, URL: host, Token: p.Token, Profile: name, Why: fmt.Sprintf("%s (%s)", why, name), Credential: "profile " + name}, nil
}

// ofDataDir returns the server of a named data directory.
func (a *app) ofDataDir(dir, why string) (target, error) {
	s, err := serverOf(dir, true)
	switch {
	case errors.Is(err, errNoServer):
		return target{Host: defaultHost, URL: defaultHost, Why: "the default: " + why + " names a directory without a server"}, nil
	case err != nil && a.getenv("ARBE_TOKEN") != "":
		return target{Host: defaultHost, URL: defaultHost, Why: "the default: the server of " + why + " cannot be read"}, nil
	case err != nil:
		return target{}, err
	}
	return s.target(why), nil
}

// onThisMachine returns the server of the working directory, or else the server that runs as this user.
func (a *app) onThisMachine() (target, error) {
	s, err := serverOf(defaultDataDir, false)
	// A directory that came with somebody else's files must not name a server elsewhere, because a credential would go there.
	if err == nil && (s.runs || (target{Host: s.Host}).isLocal()) {
		return s.target(".arbe in this directory"), nil
	}
	if err != nil && !errors.Is(err, errNoServer) && a.getenv("ARBE_TOKEN") == "" {
		return target{}, err
	}
	switch running := a.runningServers(); len(running) {
	case 0:
		return target{Host: defaultHost, URL: defaultHost, Why: "the default: no server of yours runs on this machine"}, nil
	case 1:
		return running[0].target("the server that runs on this machine"), nil
	default:
		var which []string
		for _, s := range running {
			which = append(which, fmt.Sprintf("%s (--data-dir %s)", s.Host, s.dataDir))
		}
		return target{}, fault.New(fault.Invalid, "several arbe servers run on this machine: "+strings.Join(which, ", "),
			"name one with --data-dir or --host, or run arbe in its directory")
	}
}

// target returns the server as a target. If it is not running, the target has no credential, because another program may
// listen at its address by now.
func (s localServer) target(why string) target {
	t := target{Host: s.Host, URL: first(s.URL, s.Host), Why: why}
	if s.runs {
		t.Token, t.Credential = s.Token, s.origin()
	}
	return t
}

// origin returns the path at which a server's key is stored.
func (s localServer) origin() string { return filepath.Join(s.dataDir, "cli.json") }

// defaultDataDir is the default data directory of arbe up.
const defaultDataDir = ".arbe"

// dataDir returns the data directory of this machine's arbe up.
func (a *app) dataDir() string {
	return first(a.dataDirFlag, a.getenv("ARBE_DATA_DIR"), defaultDataDir)
}

// namesDataDir reports whether the person named the data directory.
func (a *app) namesDataDir() bool { return first(a.dataDirFlag, a.getenv("ARBE_DATA_DIR")) != "" }

// cleanHost completes the address of a server. The default scheme is https, so that no credential is sent in the clear, and
// http for this machine, where arbe up serves without TLS.
func cleanHost(host string) (string, error) {
	if !strings.Contains(host, "://") {
		scheme := "https://"
		if u, err := url.Parse("http://" + host); err == nil && isLoopback(u.Hostname()) {
			scheme = "http://"
		}
		host = scheme + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fault.Newf(fault.Invalid, "write it as https://arbe.example.com or "+defaultHost, "%q is not the address of a server", host)
	}
	return strings.TrimRight(host, "/"), nil
}

// isLocal reports whether the server is meant to run on this machine.
func (t target) isLocal() bool {
	u, err := url.Parse(t.Host)
	return err == nil && isLoopback(u.Hostname())
}

// isLoopback reports whether a host name is this machine's own.
func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

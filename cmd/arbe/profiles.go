package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// localProfile is the reserved name for the server of this machine, which needs no profile.
const localProfile = "local"

// profile is a server elsewhere, and the credential for it.
type profile struct {
	Host  string `json:"host"`
	Token string `json:"token"`
}

// profiles are the servers that this user logged in to, stored in a file that only this user can read.
type profiles struct {
	// Current is the profile to use unless another is named. If it is empty, the server of this machine is used.
	Current string             `json:"current,omitempty"`
	All     map[string]profile `json:"profiles"`

	path string
}

func (p *profiles) names() []string { return slices.Sorted(maps.Keys(p.All)) }

func (p *profiles) named(name string) (profile, error) {
	found, ok := p.All[name]
	if !ok {
		next := "log in to a server with: arbe login HOST"
		if len(p.All) > 0 {
			next = "you have " + strings.Join(p.names(), ", ") + "; " + next
		}
		return profile{}, fault.Newf(fault.NotFound, next, "there is no profile %q", name)
	}
	return found, nil
}

// profilesFile returns the path of the profiles, or "" if the user has no home. It ignores relative paths, as the XDG
// specification demands, because otherwise the file would depend on the working directory.
func (a *app) profilesFile() string {
	switch {
	case filepath.IsAbs(a.getenv("ARBE_CONFIG_DIR")):
		return filepath.Join(a.getenv("ARBE_CONFIG_DIR"), "config.json")
	case filepath.IsAbs(a.getenv("XDG_CONFIG_HOME")):
		return filepath.Join(a.getenv("XDG_CONFIG_HOME"), "arbe", "config.json")
	case filepath.IsAbs(a.getenv("HOME")):
		return filepath.Join(a.getenv("HOME"), ".config", "arbe", "config.json")
	}
	return ""
}

// profiles reads the profiles. A missing file is not an error. It refuses a file that others can read or write, because the
// file holds credentials and decides where they go.
func (a *app) profiles() (*profiles, error) {
	p := &profiles{All: map[string]profile{}, path: a.profilesFile()}
	if p.path == "" {
		return p, nil
	}
	text, err := readPrivate(p.path, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return nil, fault.Newf(fault.Forbidden, "let only your user read it (chmod 600), or delete it and log in again", "cannot use %s: %v", p.path, err).Because(err)
	}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fault.Newf(fault.Precondition, "correct it, or delete it and log in again", "%s is damaged", p.path).Because(err)
	}
	if p.All == nil {
		p.All = map[string]profile{}
	}
	return p, nil
}

func (p *profiles) save() error {
	if p.path == "" {
		return fault.New(fault.Precondition, "arbe cannot find a directory for profiles", "set HOME, XDG_CONFIG_HOME or ARBE_CONFIG_DIR to an absolute path")
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = writePrivate(p.path, append(text, '\n'))
	}
	if err != nil {
		return fault.Newf(fault.Precondition, "make its directory writable, or set ARBE_CONFIG_DIR to another one", "cannot write %s", p.path).Because(err)
	}
	return nil
}

var profileName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// checkProfileName refuses the reserved name, and names that a shell would need quotes for.
func checkProfileName(name string) error {
	switch {
	case name == localProfile:
		return fault.Newf(fault.Invalid, "choose another name", "%q is the name of this machine's own server", name)
	case !profileName.MatchString(name):
		return fault.Newf(fault.Invalid, "use letters, digits, dots, dashes and underscores", "%q is not a name for a profile", name)
	}
	return nil
}

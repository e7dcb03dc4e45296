package sandbox

import (
	"cmp"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// DefaultDriver is the driver of a recipe that names none.
const DefaultDriver = "local"

// defaultCommandTimeout is the time limit of a command if its recipe has none.
const defaultCommandTimeout = 10 * time.Minute

// Recipe describes the sandboxes of an environment. Its JSON is the environment's stored config.
type Recipe struct {
	// Driver is the driver that creates the box. Defaults to [DefaultDriver].
	Driver string `json:"driver,omitempty"`
	// Image is the root file system in the driver's terms. Defaults to the driver's base.
	Image string `json:"image,omitempty"`
	// Repo is a git repository that is cloned into the working tree, at Ref (a branch, tag or commit; defaults to the
	// repository's default branch).
	Repo string `json:"repo,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Repositories are further repositories, or all of them.
	Repositories []Repository `json:"repositories,omitempty"`
	// Git are credentials for repositories. A change applies to the next use, but a new host only to new boxes.
	Git []GitCredential `json:"git,omitempty"`
	// Setup is a shell script that runs once in a new box, after the clone. Defaults to the setup in the first
	// repository's arbe.json or devcontainer.json.
	Setup string `json:"setup,omitempty"`
	// Start is a shell script that runs each time the box has started, before its next command.
	Start string `json:"start,omitempty"`
	// Directory is where commands and scripts start, below the working tree. Defaults to the working tree.
	Directory string `json:"directory,omitempty"`
	// Labels describe the environment for the house. They mean nothing to arbe.
	Labels map[string]string `json:"labels,omitempty"`
	// Secrets are the secrets of the house that the setup script and each command receive as environment variables.
	// They are stored separately from the config.
	Secrets []secret.Binding `json:"-"`
	// Limits restrict the box. Defaults to the driver's limits.
	Limits Limits `json:"limits,omitzero"`
	// Egress says which hosts the box may reach. A change applies to its next command. Its Mode defaults to
	// [egress.Listed], and then its Sets to all; with a driver that is not [Gated], an empty policy is [egress.Open].
	Egress egress.Policy `json:"egress,omitzero"`
	// CommandTimeout limits one command. Defaults to ten minutes.
	CommandTimeout time.Duration `json:"command_timeout,omitempty"`
}

// driver returns the recipe's driver or the default.
func (r Recipe) driver() string {
	if r.Driver == "" {
		return DefaultDriver
	}
	return r.Driver
}

// directory returns the absolute path of the recipe's directory.
func (r Recipe) directory() string { return path.Join(Workspace, r.Directory) }

// egress returns the recipe's policy with its defaults.
func (r Recipe) egress() egress.Policy {
	p := r.Egress
	if p.Mode == "" {
		if p.Mode = egress.Listed; len(p.Sets) == 0 {
			p.Sets = egress.Sets()
		}
	}
	return p
}

// commandTimeout returns the recipe's time limit or the default.
func (r Recipe) commandTimeout() time.Duration {
	if r.CommandTimeout == 0 {
		return defaultCommandTimeout
	}
	return r.CommandTimeout
}

// encode returns the recipe's stored form, or a [fault.Invalid] if the recipe itself is invalid.
func (r Recipe) encode() (json.RawMessage, error) {
	config, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// Postgres refuses a NUL byte, which is \u0000 in JSON. Backslashes, each written as two, are removed first,
	// because \\u0000 is not a NUL byte.
	if strings.Contains(strings.ReplaceAll(string(config), `\\`, ""), `\u0000`) {
		return nil, fault.New(fault.Invalid, "config: it has a NUL byte", "remove the NUL byte")
	}
	return config, cmp.Or(r.checkRepositories(), r.checkGit(), r.checkRest(), checkSecrets(r.Secrets), r.egress().Check())
}

// maxLabels, maxLabelName and maxLabelValue limit the labels of a recipe.
const maxLabels, maxLabelName, maxLabelValue = 50, 63, 200

// checkRest validates the scripts' directory and the labels.
func (r Recipe) checkRest() error {
	if !localFolder(r.Directory) {
		return fault.New(fault.Invalid, "directory: it is not a folder below the working tree", "give a relative path without .., such as web")
	}
	if len(r.Labels) > maxLabels {
		return fault.Newf(fault.Invalid, "remove some", "labels: more than %d", maxLabels)
	}
	for name, value := range r.Labels {
		if name == "" || len(name) > maxLabelName || len(value) > maxLabelValue || strings.ContainsFunc(name+value, unicode.IsControl) {
			return fault.Newf(fault.Invalid, "shorten it", "labels: %q has no name, is longer than a label may be, or has control characters", entry.Clip(name, maxLabelName))
		}
	}
	return nil
}

// ownVariables are the environment variables that each command has from its box.
var ownVariables = []string{"PATH", "HOME", "USER", "LANG", "TERM", "GIT_TERMINAL_PROMPT"}

// checkSecrets validates the secrets that a recipe binds.
func checkSecrets(bindings []secret.Binding) error {
	seen := map[string]bool{}
	for _, b := range bindings {
		switch err := secret.CheckName(b.Name); {
		case err != nil:
			return fault.New(fault.Invalid, "secrets: "+strings.TrimPrefix(fault.From(err).Message, "name: "), fault.From(err).Next)
		case slices.Contains(ownVariables, b.Name):
			return fault.Newf(fault.Invalid, "give the secret another name", "secrets: %s is an environment variable of each command", b.Name)
		case seen[b.Name]:
			return fault.Newf(fault.Invalid, "name it once", "secrets: %s is there twice", b.Name)
		}
		seen[b.Name] = true
	}
	return nil
}

// localRepo reports whether a repository is a directory of this machine, and returns its path.
func localRepo(repo string) (path string, local bool) {
	path, _ = strings.CutPrefix(repo, "file://")
	return path, filepath.IsAbs(path)
}

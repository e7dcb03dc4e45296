package sandbox

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/etag"
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
	// Setup is a shell script that runs once in a new box, after the clone. Image, Setup, Start, Directory and the
	// zero fields of Limits default to what the first repository says in its arbe.json or devcontainer.json.
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

	// env, startIn and unreviewed come from the [Defaults] of a repository: the variables of commands, the folder of its
	// start script, and whether Start is that script.
	env        map[string]string
	startIn    string
	unreviewed bool
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

// maxLabels, maxLabelName and maxLabelValue limit the labels of a recipe.
const maxLabels, maxLabelName, maxLabelValue = 50, 63, 200

// localRepo reports whether a repository is a directory of this machine, and returns its path.
func localRepo(repo string) (path string, local bool) {
	path, _ = strings.CutPrefix(repo, "file://")
	return path, filepath.IsAbs(path)
}

// Environment is a named recipe of a house, from which sandboxes are built.
type Environment struct {
	ID, House, Name string
	Recipe          Recipe
	CreatedAt       time.Time

	// rebuilds counts how often somebody had it rebuilt from the beginning.
	rebuilds int32
}

// ETag names the version of the environment.
func (e Environment) ETag() string { return etag.Of(e.Name, e.Recipe, e.Recipe.Secrets) }

// Repository is a git repository that is cloned into a new box.
type Repository struct {
	// URL is its address, such as https://host/path, ssh://git@host/path or git@host:path, or an absolute path on the
	// server.
	URL string `json:"url"`
	// Ref is the branch, tag or commit. Defaults to the repository's default branch.
	Ref string `json:"ref,omitempty"`
	// Depth is how many commits of the history are cloned. Defaults to all.
	Depth int `json:"depth,omitempty"`
	// Folder is where it is cloned, below the working tree. Defaults to the working tree itself if it is the only one,
	// otherwise to the last part of its URL.
	Folder string `json:"folder,omitempty"`
}

// GitCredential is a secret of the house that gives access to repositories at a host. Git in a box uses it through the
// server, and never sees it.
type GitCredential struct {
	// Host is a host, or host:port, which is reached by https or, with a key, by ssh.
	Host string `json:"host"`
	// Secret is the name of the secret with the password, the token or the private key.
	Secret string `json:"secret"`
	// User is the user name. Defaults to x-access-token, which hosts accept if they do not need one, and by ssh to git.
	User string `json:"user,omitempty"`
	// HostKeys are the fingerprints (SHA256:…) of the keys that the host may present by ssh. Defaults to the keys of
	// well-known hosts that the server knows.
	HostKeys []string `json:"host_keys,omitempty"`
	// GitHubApp is the id or client id of a GitHub App. The secret is then the App's private key, with which the server makes tokens
	// that live for an hour. Without it, a private key is used by ssh.
	GitHubApp string `json:"github_app,omitempty"`
	// GitHubAPI is the base URL of the API for the App. Defaults to https://api.github.com for github.com, and to
	// https://HOST/api/v3 for others.
	GitHubAPI string `json:"github_api,omitempty"`
}

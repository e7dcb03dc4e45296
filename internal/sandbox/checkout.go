package sandbox

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/secret"
)

// The defaults of [GitCredential].User.
const DefaultGitUser, DefaultSSHUser = "x-access-token", "git"

const (
	// maxRepositories and maxGitCredentials limit a recipe.
	maxRepositories, maxGitCredentials = 20, 20
	// maxHostKeys limits the keys of one host.
	maxHostKeys = 10
	// maxDepth limits the depth of a clone.
	maxDepth = 1 << 30
)

// checkouts returns the repositories of the recipe, each with its folder.
func (r Recipe) checkouts() []Repository {
	list := slices.Clone(r.Repositories)
	if r.Repo != "" {
		list = slices.Insert(list, 0, Repository{URL: r.Repo, Ref: r.Ref})
	}
	for i := range list {
		switch {
		case list[i].Folder != "":
			list[i].Folder = path.Clean(list[i].Folder)
		case len(list) > 1:
			list[i].Folder = folderOf(list[i].URL)
		default:
			list[i].Folder = "."
		}
	}
	return list
}

// folderOf returns the last part of a repository's URL, as git clone names its folder.
func folderOf(repo string) string {
	repo, _, _ = strings.Cut(strings.TrimRight(repo, "/"), "?")
	name := strings.TrimSuffix(repo[strings.LastIndexAny(repo, "/:")+1:], ".git")
	if name == "" || strings.HasPrefix(name, ".") {
		return "repository"
	}
	return name
}

// checkRepositories validates the repositories of a recipe.
func (r Recipe) checkRepositories() error {
	if err := checkRepo("repo", "ref", r.Repo, r.Ref); err != nil {
		return err
	}
	if len(r.Repositories) > maxRepositories {
		return fault.Newf(fault.Invalid, "clone some in the setup script", "repositories: more than %d", maxRepositories)
	}
	for i, repo := range r.Repositories {
		field := fmt.Sprintf("repositories[%d].", i)
		if repo.URL == "" {
			return fault.New(fault.Invalid, field+"url: it is empty", "give the address of the repository")
		}
		if err := checkRepo(field+"url", field+"ref", repo.URL, repo.Ref); err != nil {
			return err
		}
		if repo.Depth < 0 || repo.Depth > maxDepth {
			return fault.New(fault.Invalid, field+"depth: it is negative or too large", "give how many commits to clone, or leave it out for all")
		}
		if !localFolder(repo.Folder) {
			return fault.New(fault.Invalid, field+"folder: it is not a folder below the working tree", "give a relative path without .., such as web")
		}
	}
	list := r.checkouts()
	for i, repo := range list {
		for _, other := range list[:i] {
			if within(repo.Folder, other.Folder) || within(other.Folder, repo.Folder) {
				return fault.Newf(fault.Invalid, "give each a folder of its own", "repositories: %s and %s would be in each other's folder", other.URL, repo.URL)
			}
		}
	}
	return nil
}

// within reports whether a folder is another one or in it.
func within(folder, other string) bool {
	return other == "." || folder == other || strings.HasPrefix(folder, other+"/")
}

// localFolder reports whether a path can be a folder below the working tree. The empty path can.
func localFolder(folder string) bool {
	return folder == "" || len(folder) <= 200 && filepath.IsLocal(folder) && !strings.HasPrefix(folder, "-") && !strings.ContainsAny(folder, "\x00\n")
}

// hostName is the form of host names.
var hostName = lazyregexp.New(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// hostKey is the form of the fingerprints of hosts' keys.
var hostKey = lazyregexp.New(`^SHA256:[A-Za-z0-9+/]{43}$`)

// checkGit validates the credentials of a recipe.
func (r Recipe) checkGit() error {
	if len(r.Git) > maxGitCredentials {
		return fault.Newf(fault.Invalid, "use another environment for some", "git: more than %d hosts", maxGitCredentials)
	}
	seen := map[string]bool{}
	for i, c := range r.Git {
		field := fmt.Sprintf("git[%d].", i)
		host, port, err := net.SplitHostPort(c.Host)
		if err != nil {
			host, port = c.Host, ""
		}
		if n, err := strconv.Atoi(port); !hostName.MatchString(host) || port != "" && (err != nil || n < 1 || n > 65535) {
			return fault.New(fault.Invalid, field+"host: it is not the name of a host", "write it as github.com or git.example.com:8443, in lower case")
		}
		if err := secret.CheckName(c.Secret); err != nil {
			return fault.New(fault.Invalid, field+"secret: "+strings.TrimPrefix(fault.From(err).Message, "name: "), fault.From(err).Next)
		}
		if len(c.HostKeys) > maxHostKeys || slices.ContainsFunc(c.HostKeys, func(key string) bool { return !hostKey.MatchString(key) }) {
			return fault.New(fault.Invalid, field+"host_keys: there are too many, or one is not a fingerprint", "write it as ssh-keygen -lf shows it: SHA256: and 43 characters")
		}
		if len(c.User) > 100 || strings.ContainsAny(c.User, ":\x00\n\r") {
			return fault.New(fault.Invalid, field+"user: it is too long, or has characters that a user's name cannot have", "leave it out if the host needs none")
		}
		if err := c.checkApp(field); err != nil {
			return err
		}
		if seen[c.Host] {
			return fault.Newf(fault.Invalid, "name it once", "git: %s is there twice", c.Host)
		}
		seen[c.Host] = true
	}
	return nil
}

// appID is the form of the ids and client ids of GitHub Apps.
var appID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9.]{0,99}$`)

// checkApp validates the fields of a GitHub App.
func (c GitCredential) checkApp(field string) error {
	if c.GitHubApp == "" {
		if c.GitHubAPI != "" {
			return fault.New(fault.Invalid, field+"github_api: it is only for a GitHub App", "give the App's id as github_app too")
		}
		return nil
	}
	if !appID.MatchString(c.GitHubApp) {
		return fault.New(fault.Invalid, field+"github_app: it is not the id of a GitHub App", "write the App ID or the Client ID, as the App's page at GitHub shows it")
	}
	if c.User != "" || len(c.HostKeys) > 0 {
		return fault.New(fault.Invalid, field+"github_app: an App needs neither a user nor host keys", "leave them out")
	}
	u, err := url.Parse(c.GitHubAPI)
	if c.GitHubAPI != "" && (err != nil || len(c.GitHubAPI) > 300 || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return fault.New(fault.Invalid, field+"github_api: it is not the base URL of an API", "write it as https://git.example.com/api/v3, or leave it out")
	}
	return nil
}

// checkRepo validates a repository and a ref. Both become arguments of git, so neither may look like an option: otherwise
// git would do what the recipe's author chooses, such as run a program.
func checkRepo(field, refField, repo, ref string) error {
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, " \n\x00") {
		return fault.New(fault.Invalid, refField+": it is not the name of a branch, a tag or a commit", "give one, or leave it out")
	}
	if repo == "" {
		return nil
	}
	if _, local := localRepo(repo); local {
		return nil
	}
	if scpAddress.MatchString(repo) {
		return nil
	}
	u, err := url.Parse(repo)
	if err == nil && u.User != nil && u.Scheme != "ssh" {
		return fault.New(fault.Invalid, field+": it has a password or token, which everyone in the house could read",
			"remove it, keep it with arbe secret set, and bind that to the host with git")
	}
	if err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "ssh" || u.Scheme == "git") {
		return nil
	}
	return fault.New(fault.Invalid, field+": it is not the address of a git repository",
		"write it as https://host/path or git@host:path, or as an absolute path on the server")
}

// Remote returns the https:// URL of the repository that is the working tree itself, and its host. Both are empty if
// there is none, or if its URL is not of that kind.
func (r Recipe) Remote() (remote, host string) {
	for _, repo := range r.checkouts() {
		if repo.Folder != "." {
			continue
		}
		at := repo.URL
		if rest, ok := strings.CutPrefix(at, "git@"); ok {
			at = "https://" + strings.Replace(rest, ":", "/", 1)
		} else if rest, ok := strings.CutPrefix(at, "ssh://git@"); ok {
			at = "https://" + rest
		}
		if u, err := url.Parse(at); err == nil && u.Scheme == "https" && u.User == nil && u.RawQuery == "" && u.Fragment == "" {
			return at, u.Host
		}
	}
	return "", ""
}

// HasCredential reports whether git in a box has a credential for a host.
func (r Recipe) HasCredential(host string) bool {
	return slices.ContainsFunc(r.Git, func(c GitCredential) bool { return c.Host == host })
}

// scpAddress is the form of ssh addresses without a scheme: git@host:path.
var scpAddress = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*@[a-z0-9]([a-z0-9.-]*[a-z0-9])?:[A-Za-z0-9/~._][^\x00-\x20\x7f]*$`)

// GitPath is the path of the server's door for git in boxes. The door serves https://HOST/PATH at GitPath + HOST +
// "/" + PATH. By ssh, PATH is relative to the user's home directory on the host, and a PATH that begins with GitRoot
// is absolute.
const GitPath, GitRoot = "/git/", "@root/"

// rewrites returns the git configuration that sends requests for the credentials' hosts to the server's door. It
// contains no secret.
func rewrites(door string, credentials []GitCredential) (args []string) {
	for _, c := range credentials {
		to := "url." + door + GitPath + c.Host + "/"
		host, _, ported := strings.Cut(c.Host, ":")
		user := cmp.Or(c.User, DefaultSSHUser)
		args = append(args, to+".insteadOf", "https://"+c.Host+"/")
		for _, user := range slices.Compact([]string{DefaultSSHUser, user}) {
			args = append(args, to+".insteadOf", user+"@"+host+":", to+GitRoot+".insteadOf", user+"@"+host+":/", to+GitRoot+".insteadOf", "ssh://"+user+"@"+host+"/")
			if ported {
				args = append(args, to+GitRoot+".insteadOf", "ssh://"+user+"@"+c.Host+"/")
			}
		}
	}
	return args
}

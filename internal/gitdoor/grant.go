package gitdoor

import (
	"crypto/sha256"
	"net/url"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// grant is what a token is for.
type grant struct {
	app  App
	key  [sha256.Size]byte // of the private key, so that a new key needs a new token
	host string
	// owner and name are the repository.
	owner, name string
	// access is "read" or "write".
	access string
}

// grantOf returns the grant that a request of git at a host needs.
func grantOf(c Credential, host string, target *url.URL) (grant, error) {
	g := grant{app: c.App, key: sha256.Sum256([]byte(c.Password)), host: host, access: "read"}
	if target.Query().Get("service") == "git-receive-pack" || strings.HasSuffix(target.Path, "/git-receive-pack") {
		g.access = "write"
	}
	repo := strings.TrimPrefix(target.Path, "/")
	for _, q := range requests {
		repo = strings.TrimSuffix(repo, q.end)
	}
	parts := strings.Split(strings.ToLower(repo), "/") // names on GitHub have no case
	if len(parts) == 2 {
		g.owner, g.name = parts[0], strings.TrimSuffix(parts[1], ".git")
	}
	if strings.Trim(g.owner, ".") == "" || strings.Trim(g.name, ".") == "" {
		return g, fault.Newf(fault.Invalid, "write the address as https://"+host+"/OWNER/REPOSITORY", "a GitHub App opens no repository with the path %s", repo)
	}
	return g, nil
}

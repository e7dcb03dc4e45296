package gitdoor

import (
	"net/url"
	"strings"
)

// Credential gives access to repositories at a host: by https with a password or token, or by ssh with a private key.
type Credential struct {
	// User may be empty; see [sandbox.GitCredential].
	User, Password string
	// HostKeys are the fingerprints (SHA256:…) of the keys that the host shows by ssh.
	HostKeys []string
	// App is the GitHub App if Password is the private key of one.
	App App
}

// App is a GitHub App. Its private key is the password of the [Credential].
type App struct {
	// ID is the App's id or client id. If it is empty, there is no App.
	ID string
	// API is the base URL of GitHub's API. Defaults to that of the repository's host.
	API string
}

// api returns the base URL of the API for repositories at a host.
func (a App) api(host string) (*url.URL, error) {
	base := a.API
	switch {
	case base != "":
	case host == "github.com" || strings.HasSuffix(host, ".ghe.com"):
		base = "https://api." + host
	default:
		base = "https://" + host + "/api/v3" // GitHub Enterprise Server
	}
	return url.Parse(strings.TrimRight(base, "/"))
}

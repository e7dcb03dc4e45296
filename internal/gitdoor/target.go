package gitdoor

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// lfsPath is in the path of each request of LFS.
const lfsPath = "/info/lfs/"

// requests are the requests of git, by the end of their path.
var requests = []struct {
	method, end string
	services    []string // values of the query's only field, service
}{
	{http.MethodGet, "/info/refs", []string{"git-upload-pack", "git-receive-pack"}},
	{http.MethodPost, "/git-upload-pack", nil},
	{http.MethodPost, "/git-receive-pack", nil},
}

// repositoryPath is the form of the paths of repositories.
var repositoryPath = lazyregexp.New(`^(/[A-Za-z0-9._~+@%-]+)+$`)

// targetOf returns the path and query of a request, if it is one of git's.
func targetOf(method, at string, query url.Values) (*url.URL, error) {
	for _, q := range requests {
		repo, found := strings.CutSuffix(at, q.end)
		if !found || method != q.method || !repositoryPath.MatchString(repo) || path.Clean(at) != at {
			continue
		}
		target := &url.URL{Path: at}
		if q.services == nil && len(query) == 0 {
			return target, nil
		}
		for _, service := range q.services {
			if len(query) == 1 && len(query["service"]) == 1 && query.Get("service") == service {
				target.RawQuery = "service=" + service
				return target, nil
			}
		}
	}
	if strings.Contains(at, lfsPath) {
		return nil, fault.New(fault.NotFound, "LFS does not work with the git credentials of an environment", "set GIT_LFS_SKIP_SMUDGE=1 to check out the repository without the files of LFS")
	}
	return nil, notGit()
}

func notGit() error {
	return fault.New(fault.NotFound, "this is not a request of git over https", "use git, with a current protocol")
}

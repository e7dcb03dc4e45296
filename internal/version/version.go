// Package version says which build of arbe this is.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// stamp is the version and commit the full commit of a build that Go does not stamp itself: one of a package of a
// distribution, which has no repository beside it, or of a git worktree, which Go does not recognise. A stamp that ends
// in "-dirty", as of git describe, says that files were changed since the commit. Both are set by
// go build -ldflags "-X github.com/arbe-dev/arbe/internal/version.stamp=v1.2.3 -X …/internal/version.commit=0c502c9…".
var stamp, commit string

// Info describes a build. Fields that are not known are empty.
type Info struct {
	// Version is that of the release, or what Go makes of the commit; "devel" when neither is known.
	Version string `json:"version"`
	// Revision is the commit, and Time its time. Modified says that files were changed since.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Go is the version of Go that built it.
	Go string `json:"go"`
}

// Get describes this build.
var Get = sync.OnceValue(func() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return of(stamp, commit, build)
})

// of combines the values that the linker set with those that Go recorded in the build. The commit that Go recorded has
// priority, because Go reads it from the tree that it builds.
func of(stamp, commit string, build *debug.BuildInfo) Info {
	module := build.Main.Version
	if module == "(devel)" {
		module = ""
	}
	info := Info{Version: cmp.Or(stamp, module, "devel"), Go: runtime.Version()}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Revision = s.Value
		case "vcs.time":
			info.Time = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	if info.Revision == "" && commit != "" {
		info.Revision, info.Modified = commit, strings.HasSuffix(stamp, "-dirty")
	}
	return info
}

// String is the build on one line: "v1.2.3 (0c502c9a1b2c, modified), go1.26".
func (i Info) String() string {
	text := i.Version
	if i.Revision != "" {
		text += " (" + i.Revision[:min(12, len(i.Revision))]
		if i.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + ", " + i.Go
}

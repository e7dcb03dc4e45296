// Package version says which build of arbe this is.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"
)

// stamp is the version of a build that has no module version and no repository beside it, as a package of a
// distribution: go build -ldflags "-X github.com/arbe-dev/arbe/internal/version.stamp=v1.2.3".
var stamp string

// Info is what is known of a build. What is not known is empty.
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

// Get is this build.
var Get = sync.OnceValue(func() Info {
	info := Info{Version: stamp, Go: runtime.Version()}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		info.Version = cmp.Or(stamp, "devel")
		return info
	}
	if v := build.Main.Version; v != "(devel)" {
		info.Version = cmp.Or(stamp, v)
	}
	info.Version = cmp.Or(info.Version, "devel")
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
	return info
})

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

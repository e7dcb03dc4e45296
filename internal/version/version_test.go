package version_test

import (
	"runtime/debug"
	"testing"

	"github.com/arbe-dev/arbe/internal/version"
)

func TestString(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]version.Info{
		"v1.2.3, go1.26":                         {Version: "v1.2.3", Go: "go1.26"},
		"v1.2.3 (0123456789ab), go1.26":          {Version: "v1.2.3", Revision: "0123456789abcdef", Go: "go1.26"},
		"devel (0123456789ab, modified), go1.26": {Version: "devel", Revision: "0123456789abcdef", Modified: true, Go: "go1.26"},
		"devel (short), " + version.Get().Go:     {Version: "devel", Revision: "short", Go: version.Get().Go},
	} {
		if got := info.String(); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
	if version.Get().Version == "" {
		t.Error("this build has no version")
	}
}

func TestABuildSaysItsCommit(t *testing.T) {
	t.Parallel()
	goStamp := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "fedcba9"}, {Key: "vcs.time", Value: "2030-01-02T15:04:05Z"}, {Key: "vcs.modified", Value: "true"}}}
	release := &debug.BuildInfo{}
	release.Main.Version = "v1.2.3"
	for name, c := range map[string]struct {
		stamp, commit string
		build         *debug.BuildInfo
		want          version.Info
	}{
		"nothing is known":            {"", "", &debug.BuildInfo{}, version.Info{Version: "devel"}},
		"a release, by go install":    {"", "", release, version.Info{Version: "v1.2.3"}},
		"Go's own stamp":              {"", "", goStamp, version.Info{Version: "devel", Revision: "fedcba9", Time: "2030-01-02T15:04:05Z", Modified: true}},
		"the linker's":                {"v1.2.3", "0123456", &debug.BuildInfo{}, version.Info{Version: "v1.2.3", Revision: "0123456"}},
		"the linker's, of a change":   {"v1.2.3-dirty", "0123456", &debug.BuildInfo{}, version.Info{Version: "v1.2.3-dirty", Revision: "0123456", Modified: true}},
		"both: Go's commit, one name": {"v1.2.3", "0123456", goStamp, version.Info{Version: "v1.2.3", Revision: "fedcba9", Time: "2030-01-02T15:04:05Z", Modified: true}},
		"a version without a commit":  {"v1.2.3", "", &debug.BuildInfo{}, version.Info{Version: "v1.2.3"}},
	} {
		c.want.Go = version.Get().Go
		if got := version.Of(c.stamp, c.commit, c.build); got != c.want {
			t.Errorf("%s: it is %+v, want %+v", name, got, c.want)
		}
	}
}

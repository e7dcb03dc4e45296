package version_test

import (
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

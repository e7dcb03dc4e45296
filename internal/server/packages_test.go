package server_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is the package map of the README: the packages of this module that each package may import. A line that ends
// in "/…" is for the packages below that folder that have no line of their own.
var mayImport = map[string]string{
	"cmd/arbe":            "internal/door internal/httpd proto/arbe proto/arbe/v1 proto/arbe/v1/arbev1connect internal/server internal/policy internal/entry internal/fault internal/version",
	"proto/arbe":          "proto/arbe/v1 proto/arbe/v1/arbev1connect",
	"proto/arbe/v1":       "",
	"proto/arbe/generate": "proto/arbe/v1",
	"proto/arbe/v1/…":     "proto/arbe/v1",
	"db":                  "internal/fault",
	"db/query":            "",
	"db/embedded":         "internal/fault",
	"db/dbtest":           "db db/embedded internal/secret internal/fault",
	"web":                 "proto/arbe proto/arbe/v1 proto/arbe/v1/arbev1connect internal/policy internal/entry internal/fault",
	"web/lexers":          "",
	"internal/fault":      "",
	"internal/entry":      "internal/fault",
	"internal/logging":    "",
	"internal/version":    "",
	"internal/secret":     "db db/query internal/fault",
	"internal/stream":     "db db/query internal/stream/commit internal/stream/fanout internal/stream/store internal/entry internal/fault",
	"internal/thread":     "db db/query internal/stream internal/entry internal/fault",
	"internal/auth":       "db db/query internal/entry internal/fault internal/logging proto/arbe/v1",
	"internal/auth/…":     "db db/dbtest internal/auth internal/fault",
	"internal/house":      "db db/query internal/bot internal/sandbox internal/thread internal/stream internal/entry internal/fault",
	"internal/live":       "db internal/bot internal/house internal/sandbox internal/thread internal/stream internal/fault",
	"internal/sandbox":    "db db/query internal/secret internal/thread internal/stream internal/entry internal/fault",
	"internal/sandbox/…":  "internal/sandbox internal/sandbox/local/supervisor internal/outbound internal/fault",
	"internal/model":      "db db/query internal/secret internal/outbound internal/entry internal/fault",
	"internal/model/…":    "internal/model",
	"internal/outbound":   "",
	"internal/turn":       "db db/query internal/model internal/picture internal/secret internal/stream internal/entry internal/fault",
	"internal/dispatch":   "db db/query internal/artifact internal/bot internal/model internal/outbound internal/picture internal/policy internal/secret internal/turn internal/sandbox internal/thread internal/stream internal/entry internal/fault internal/logging",
	"internal/rpc":        "db internal/artifact internal/auth internal/bot internal/dispatch internal/entry internal/fault internal/house internal/live internal/logging internal/model internal/picture internal/sandbox internal/secret internal/stream internal/thread internal/turn proto/arbe/v1 proto/arbe/v1/arbev1connect",
	"internal/httpd":      "",
	"internal/server":     "*",
	"internal/secret/…":   "internal/secret internal/fault",
	"internal/bot":        "db db/query internal/thread internal/entry internal/fault",
	"internal/policy":     "internal/bot",

	"internal/stream/commit": "db internal/stream/store internal/entry internal/fault",
	"internal/stream/fanout": "db internal/stream/store internal/entry internal/fault",
	"internal/stream/store":  "db db/query internal/entry internal/fault",

	"internal/blob":     "db db/query internal/fault",
	"internal/blob/…":   "internal/blob internal/fault",
	"internal/artifact": "db db/query internal/blob internal/picture internal/entry internal/fault",
	"internal/picture":  "",

	"internal/sandbox/local/…":            "",
	"internal/sandbox/local/supervisor/…": "internal/sandbox/local/supervisor",

	"internal/chaos":        "",
	"internal/subscription": "db db/query internal/outbound internal/stream internal/fault",
	"internal/door":         "db internal/auth internal/dispatch internal/entry internal/fault internal/httpd internal/stream internal/subscription",
	"internal/door/…":       "proto/arbe proto/arbe/v1 internal/fault",
}

func TestPackagesImportWhatTheMapAllows(t *testing.T) {
	t.Parallel()
	const module = "github.com/arbe-dev/arbe/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimPrefix(words[0], module)
		allowed, ok := mayImport[name]
		if !ok {
			allowed, ok = mayImport[name[:strings.LastIndex(name, "/")]+"/…"]
		}
		if !ok {
			t.Errorf("%s is not in the map: add it here and to the README", name)
			continue
		}
		for _, path := range words[1:] {
			if ours, found := strings.CutPrefix(path, module); found && allowed != "*" && !slices.Contains(strings.Fields(allowed), ours) {
				t.Errorf("%s imports %s, which its line in the map does not allow", name, ours)
			}
		}
	}
}

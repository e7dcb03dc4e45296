package server_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is the package map of the README: which of our packages each package may import. A package
// under a folder that ends in "/…" is held to that folder's line.
var mayImport = map[string]string{
	"cmd/arbe":           "internal/door proto/arbe proto/arbe/v1 proto/arbe/v1/arbev1connect internal/server internal/entry internal/fault",
	"proto/arbe":         "proto/arbe/v1 proto/arbe/v1/arbev1connect",
	"proto/arbe/v1":      "",
	"proto/arbe/v1/…":    "proto/arbe/v1",
	"db":                 "internal/fault",
	"db/query":           "",
	"db/embedded":        "internal/fault",
	"db/dbtest":          "db db/embedded internal/secret internal/fault",
	"web":                "proto/arbe/v1 proto/arbe/v1/arbev1connect internal/entry internal/fault",
	"internal/fault":     "",
	"internal/entry":     "internal/fault",
	"internal/secret":    "internal/fault",
	"internal/stream":    "db db/query internal/entry internal/fault",
	"internal/thread":    "db db/query internal/stream internal/entry internal/fault",
	"internal/auth":      "db db/query internal/fault",
	"internal/auth/…":    "db db/dbtest internal/auth internal/fault",
	"internal/house":     "db db/query internal/sandbox internal/thread internal/stream internal/entry internal/fault",
	"internal/sandbox":   "db db/query internal/thread internal/stream internal/entry internal/fault",
	"internal/sandbox/…": "internal/sandbox internal/fault",
	"internal/dispatch":  "db db/query internal/sandbox internal/thread internal/stream internal/entry internal/fault",
	"internal/rpc":       "db internal/auth internal/dispatch internal/entry internal/fault internal/house internal/sandbox internal/stream internal/thread proto/arbe/v1 proto/arbe/v1/arbev1connect",
	"internal/server":    "*",

	"internal/chaos":        "",
	"internal/subscription": "db db/query internal/stream internal/fault",
	"internal/door":         "db internal/auth internal/entry internal/fault internal/stream internal/subscription",
	"internal/door/…":       "db db/embedded internal/auth internal/door internal/fault internal/secret internal/stream internal/subscription",
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
			t.Errorf("%s is not on the map: add it here and to the README", name)
			continue
		}
		for _, path := range words[1:] {
			if ours, found := strings.CutPrefix(path, module); found && allowed != "*" && !slices.Contains(strings.Fields(allowed), ours) {
				t.Errorf("%s imports %s, which its line on the map does not allow", name, ours)
			}
		}
	}
}

package server_test

import (
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the prefix of this module's import paths.
const module = "github.com/arbe-dev/arbe/"

// below lists the packages that the README's map leaves out because they belong to another package. It has the packages that
// each may import, in the map's words. A line that ends in "/…" covers the packages below that folder that have no line.
var below = map[string]string{
	"db/query":                            "",
	"db/embedded":                         "fault",
	"db/dbtest":                           "db, db/embedded, secret, fault",
	"db/dbtest/gotest":                    "db/dbtest, fault",
	"web/markup/lexers":                   "",
	"cmd/arbe/early":                      "cmd/arbe/early/first",
	"cmd/arbe/early/first":                "",
	"cmd/arbe/man":                        "",
	"proto/arbe":                          "proto",
	"proto/arbe/generate":                 "proto",
	"proto/arbe/v1/arbev1connect":         "proto",
	"internal/auth/…":                     "auth, db, db/dbtest, fault",
	"internal/blob/…":                     "blob, fault",
	"internal/command/…":                  "command, sandbox, sandbox/local, secret, stream, thread, entry, db, fault",
	"internal/door/…":                     "proto, proto/arbe, fault",
	"internal/gitdoor/gitdoortest":        "",
	"internal/harness/…":                  "harness, entry",
	"internal/httpd/httpdtest":            "",
	"internal/harness/all":                "harness, harness/acp, harness/claude, harness/codex, harness/pi",
	"internal/harness/harnesstest":        "harness, entry, model/modeltest",
	"internal/model/…":                    "model",
	"internal/port/…":                     "",
	"internal/runner/…":                   "",
	"internal/sandbox/…":                  "sandbox, egress, outbound, fault",
	"internal/sandbox/local/…":            "",
	"internal/sandbox/remote/…":           "sandbox/remote/protocol",
	"internal/sandbox/sandboxtest/…":      "",
	"internal/sandbox/daytona/…":          "sandbox/sandboxtest/hostbox",
	"internal/sandbox/docker/…":           "",
	"internal/sandbox/sprite/…":           "sandbox/sandboxtest/hostbox",
	"internal/sandbox/local/supervisor/…": "sandbox/local/supervisor",
	"internal/secret/…":                   "secret, wait, fault",
}

// linked lists the packages whose lines in the map cover everything that they link, not only their imports. The packages of
// pages and clients must stay free of the database and of everything that needs it.
var linked = []string{"web", "web/markup", "proto/arbe", "internal/entry", "internal/fault", "internal/outbound", "internal/httpd"}

// serving lists the files of cmd/arbe whose verbs do a server's work. All other verbs call the services of a server.
var serving = []string{"config.go", "doctor.go", "migrate.go", "secret_key.go", "serve.go", "signing_key.go", "stream_proxy.go", "up.go"}

// listed is a package as go list describes it: its imports, and everything that it links, without this module's prefix.
type listed struct{ imports, deps []string }

func list(t *testing.T) map[string]listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}|{{join .Imports " "}}|{{join .Deps " "}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]listed{}
	for line := range strings.Lines(strings.ReplaceAll(string(out), module, "./")) {
		parts := strings.Split(line, "|")
		all[strings.TrimPrefix(parts[0], "./")] = listed{strings.Fields(parts[1]), strings.Fields(parts[2])}
	}
	return all
}

// ours returns the paths in this module, as the map names them.
func ours(paths []string) (names []string) {
	for _, path := range paths {
		if name, ok := strings.CutPrefix(path, "./"); ok {
			names = append(names, name)
		}
	}
	return names
}

// everywhere is a package that every other package may import, like the standard library. The map does not list these imports.
const everywhere = "internal/lazyregexp"

// readMap returns the README's package map: what each package may import.
func readMap(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(readme), "| package | in one sentence | imports of ours |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("the README has no package map")
	}
	lines := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 3 {
			lines[strings.Trim(cells[0], "`")] = cells[2]
		}
	}
	return lines
}

// packages returns the packages that the words in a line of the map stand for.
func packages(words string, all map[string]listed) (names []string) {
	for _, word := range strings.Split(words, ", ") {
		switch word {
		case "", "–":
		case "all of the above":
			names = slices.AppendSeq(names, maps.Keys(all))
		case "db":
			names = append(names, "db", "db/query")
		case "proto":
			names = append(names, "proto/arbe/v1", "proto/arbe/v1/arbev1connect")
		default:
			if _, top := all[word]; !top {
				word = "internal/" + word
			}
			names = append(names, word)
		}
	}
	return names
}

func TestPackagesImportWhatTheMapAllows(t *testing.T) {
	t.Parallel()
	all, lines := list(t), readMap(t)
	for name := range lines {
		if _, exists := all[name]; !exists {
			t.Errorf("the README's map has a line for %s, which does not exist", name)
		}
	}
	for name, p := range all {
		words, ok := lines[name]
		if !ok {
			words, ok = below[name]
		}
		if !ok {
			words, ok = below[name[:max(strings.LastIndex(name, "/"), 0)]+"/…"]
		}
		if !ok {
			t.Errorf("%s is not in the map: add it to the README's", name)
			continue
		}
		allowed := packages(words, all)
		for _, path := range ours(p.imports) {
			if path != everywhere && !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s, which its line in the map does not allow", name, path)
			}
		}
	}
}

// Every package that a line of the README's map names is imported by the line's package.
func TestPackagesImportWhatTheMapNames(t *testing.T) {
	t.Parallel()
	all := list(t)
	for name, words := range readMap(t) {
		for _, word := range strings.Split(words, ", ") {
			used := slices.ContainsFunc(packages(word, all), func(named string) bool {
				_, exists := all[named]
				return exists && slices.Contains(ours(all[name].imports), named)
			})
			if word != "–" && !used {
				t.Errorf("the README says that %s imports %s, but it does not", name, word)
			}
		}
	}
}

// The packages of pages and clients link only what their lines name, however far down.
func TestPackagesLinkWhatTheMapAllows(t *testing.T) {
	t.Parallel()
	all, lines := list(t), readMap(t)
	for _, name := range linked {
		words, ok := lines[name]
		if !ok {
			words = below[name]
		}
		allowed := packages(words, all)
		for _, path := range ours(all[name].deps) {
			if path != everywhere && !slices.Contains(allowed, path) {
				t.Errorf("%s links %s, which its line in the map does not allow", name, path)
			}
		}
	}
}

// Verbs that call a server link no database driver. They share a program with the server, so the test looks at their files.
func TestPackagesOfVerbsLinkNoDatabase(t *testing.T) {
	t.Parallel()
	all := list(t)
	files, err := filepath.Glob("../../cmd/arbe/*.go")
	if err != nil || len(files) < 100 {
		t.Fatalf("there are %d files in cmd/arbe: %v", len(files), err)
	}
	for _, name := range serving {
		if !slices.ContainsFunc(files, func(file string) bool { return filepath.Base(file) == name }) {
			t.Errorf("cmd/arbe/%s does not exist: leave it out here", name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(serving, filepath.Base(file)) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			p := all[strings.TrimPrefix(path, module)]
			if strings.HasPrefix(path, "github.com/jackc/pgx") || slices.ContainsFunc(p.deps, isDatabase) {
				t.Errorf("%s imports %s, which links pgx: ask the server by its services", filepath.Base(file), path)
			}
		}
	}
}

func isDatabase(path string) bool { return strings.HasPrefix(path, "github.com/jackc/pgx") }

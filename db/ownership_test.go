package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	ownerLine = regexp.MustCompile(`^-- Owner: (\S+?)[.,]?(\s|$)`)
	queryName = regexp.MustCompile(`(?m)^-- name: (\w+) :`)
)

// owners returns the packages that own queries, by the query's name.
func owners(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no queries: %v", err)
	}
	owner := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first := ownerLine.FindStringSubmatch(string(text))
		if first == nil {
			t.Errorf("%s does not begin with -- Owner: PACKAGE", file)
			continue
		}
		for _, name := range queryName.FindAllStringSubmatch(string(text), -1) {
			owner[name[1]] = first[1]
		}
	}
	return owner
}

// calls returns, by method name, the packages of this module that import a package and use the method outside of
// tests.
func calls(t *testing.T, importing string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	imports := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		for _, i := range file.Imports {
			imports[pkg] = imports[pkg] || strings.Trim(i.Path.Value, `"`) == importing
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && !slices.Contains(found[s.Sel.Name], pkg) {
				found[s.Sel.Name] = append(found[s.Sel.Name], pkg)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		found[name] = slices.DeleteFunc(found[name], func(pkg string) bool { return !imports[pkg] })
	}
	return found
}

// A package and its subpackages are one owner: the engines of internal/stream and their store use its queries.
func TestAQueryIsUsedByItsOwner(t *testing.T) {
	t.Parallel()
	used := calls(t, "github.com/arbe-dev/arbe/db/query")
	for name, owner := range owners(t) {
		if len(used[name]) == 0 {
			t.Errorf("nobody uses the query %s: delete it", name)
		}
		for _, pkg := range used[name] {
			// Any package that inserts a row may generate an id.
			if pkg != owner && !strings.HasPrefix(pkg, owner+"/") && name != "NewID" {
				t.Errorf("%s uses the query %s, which belongs to %s: ask that package, or write a query of its own", pkg, name, owner)
			}
		}
	}
}

// Outside of [db.DB.In], a query sees no house's rows. These packages have queries that belong to no house.
func TestThePoolIsForWhatIsNoHouses(t *testing.T) {
	t.Parallel()
	allowed := []string{"internal/auth", "internal/auth/authtest", "internal/house", "internal/jobs", "internal/push", "internal/sandbox", "internal/server", "internal/stream/store"}
	for _, pkg := range calls(t, "github.com/arbe-dev/arbe/db")["Pool"] {
		if !slices.Contains(allowed, pkg) {
			t.Errorf("%s uses the pool: use In, or say here why not", pkg)
		}
	}
}

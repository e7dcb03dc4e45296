package server_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// circular lists the packages whose files form a circle. It is empty, and should stay so.
var circular []string

// Files of a package refer to each other in one direction, so that each can be read after those that it needs. A file refers to
// another one if it names something that the other declares at package scope. Methods do not count, because a type's methods may
// be in several files.
func TestFilesOfAPackageFormNoCircle(t *testing.T) {
	t.Parallel()
	read := 0
	for _, dir := range foldersWithGo(t) {
		name := filepath.ToSlash(strings.TrimPrefix(dir, "../../"))
		circle := circleOf(arrowsOf(t, dir))
		read++
		switch excused := slices.Contains(circular, name); {
		case excused && circle == nil:
			t.Errorf("%s forms no circle any more: remove it from the list", name)
		case !excused && circle != nil:
			t.Errorf("files of %s form a circle; move what they share into the lowest of them, or into a file of its own:\n\t%s", name, strings.Join(circle, "\n\t"))
		}
	}
	if read < 100 {
		t.Errorf("the test read only %d packages", read)
	}
}

// arrows says which files a file needs, and for which names.
type arrows map[string]map[string][]string

// foldersWithGo returns the folders of the module that have Go files of programs, as opposed to tests.
func foldersWithGo(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || path != "../.." && strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// arrowsOf reads the files of a package that are built here. It leaves out generated ones, but for those of templ, which have the
// references of the pages that they are made from.
func arrowsOf(t *testing.T, dir string) arrows {
	t.Helper()
	set := token.NewFileSet()
	files, declared := map[string]*ast.File{}, map[string]string{}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		if built, err := build.Default.MatchFile(dir, name); err != nil || !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		// The parser resolves names within a file, and lists the others. This needs no types.
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) && !strings.HasSuffix(name, "_templ.go") {
			continue
		}
		files[name] = file
		for what := range file.Scope.Objects {
			declared[what] = name
		}
	}
	all := arrows{}
	for name, file := range files {
		to := map[string][]string{}
		keys := keysOf(file)
		for _, id := range file.Unresolved {
			if other := declared[id.Name]; other != "" && !keys[id] {
				to[other] = append(to[other], id.Name)
			}
		}
		all[name] = to
	}
	return all
}

// keysOf returns the keys of composite literals. They may be fields, whose names say nothing about the package's scope.
func keysOf(file *ast.File) map[*ast.Ident]bool {
	keys := map[*ast.Ident]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if pair, ok := n.(*ast.KeyValueExpr); ok {
			if id, ok := pair.Key.(*ast.Ident); ok {
				keys[id] = true
			}
		}
		return true
	})
	return keys
}

// circleOf returns the lines that describe the shortest circle; nil if there is none.
func circleOf(all arrows) (lines []string) {
	var shortest []string
	for _, start := range slices.Sorted(maps.Keys(all)) {
		if way := wayBack(all, start); way != nil && (shortest == nil || len(way) < len(shortest)) {
			shortest = way
		}
	}
	for i := range max(len(shortest)-1, 0) {
		from, to := shortest[i], shortest[i+1]
		words := slices.Clone(all[from][to])
		slices.Sort(words)
		lines = append(lines, fmt.Sprintf("%s needs %s: %s", from, to, strings.Join(slices.Compact(words), ", ")))
	}
	return lines
}

// wayBack returns the shortest way from a file to itself, which is its first and last step; nil if there is none.
func wayBack(all arrows, start string) []string {
	ways := [][]string{{start}}
	for seen := map[string]bool{}; len(ways) > 0; {
		way := ways[0]
		ways = ways[1:]
		for _, next := range slices.Sorted(maps.Keys(all[way[len(way)-1]])) {
			longer := append(slices.Clone(way), next)
			if next == start {
				return longer
			}
			if !seen[next] {
				seen[next] = true
				ways = append(ways, longer)
			}
		}
	}
	return nil
}

func TestCirclesOfFilesAreFound(t *testing.T) {
	t.Parallel()
	straight := arrows{"a.go": {"b.go": {"B"}, "c.go": {"C"}}, "b.go": {"c.go": {"C"}}, "c.go": {}}
	if circle := circleOf(straight); circle != nil {
		t.Errorf("there is no circle, but: %q", circle)
	}
	straight["c.go"]["b.go"] = []string{"Y", "X", "Y"}
	want := []string{"b.go needs c.go: C", "c.go needs b.go: X, Y"}
	if circle := circleOf(straight); !slices.Equal(circle, want) {
		t.Errorf("the circle is %q, not %q", circle, want)
	}
}

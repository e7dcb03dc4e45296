package server_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/all"
)

// A runtime is one folder of internal/harness and a line in its package all. Other code gets the name from a bot's row. Only the
// bots of a new house have theirs in code.
func TestNoOtherPlaceKnowsARuntimesName(t *testing.T) {
	t.Parallel()
	known := []string{"internal/bot/create.go", "internal/run/spawn.go"} // the bots of a new house, and which of them codes by default
	var names []string
	for _, h := range all.Harnesses {
		names = append(names, h.Info().Name)
	}
	walked := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "harness" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
			return filepath.SkipDir
		}
		name, _ := filepath.Rel("../..", path)
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || slices.Contains(known, filepath.ToSlash(name)) {
			return err
		}
		walked++
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, _ := strconv.Unquote(lit.Value); slices.Contains(names, text) {
					t.Errorf("%s knows the runtime %s", name, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || walked < 500 {
		t.Errorf("%d files were read: %v", walked, err)
	}
}

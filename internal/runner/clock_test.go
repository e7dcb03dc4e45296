package runner_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// A clock that jumps an hour forward or back changes nothing in a run. Heartbeats, limits and deadlines compare times that
// time.Now returned in this process, so they use the monotonic clock; the server decides when a token is renewed. Only
// the time of a post comes from the wall clock, and the door ignores it. No test can make the clock jump, so this one
// looks for the ways in which a time loses its monotonic part, or comes from elsewhere.
func TestNoLimitUsesTheWallClock(t *testing.T) {
	t.Parallel()
	wall := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "Round", "time.Parse", "time.ParseInLocation", "time.Date", "Format", "AppendFormat", "ModTime", "AddDate"}
	allowed := []string{
		"door.go: at.UTC",                                        // the time of a post
		"worktree.go: info.ModTime", "worktree.go: info.ModTime", // a copied file keeps its time
	}
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	nows := 0
	for _, name := range names {
		if !strings.HasSuffix(name.Name(), ".go") || strings.HasSuffix(name.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := s.X.(*ast.Ident)
			if of == nil {
				of = ast.NewIdent("…")
			}
			if of.Name == "time" && s.Sel.Name == "Now" {
				nows++
			}
			if call := of.Name + "." + s.Sel.Name; slices.Contains(wall, s.Sel.Name) || slices.Contains(wall, call) {
				found = append(found, name.Name()+": "+call)
			}
			return true
		})
	}
	if !slices.Equal(found, allowed) || nows == 0 {
		t.Errorf("times are read from the wall clock here: %q", found)
	}
}

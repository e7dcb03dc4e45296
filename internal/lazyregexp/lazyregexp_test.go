package lazyregexp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// An expression is compiled when somebody first needs it, which is too late to learn of a mistake in it.
func TestEveryPatternOfTheProgramCompiles(t *testing.T) {
	t.Parallel()
	found := 0
	for _, root := range []string{"cmd", "db", "internal", "proto", "web"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				name, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || name.Sel.Name != "New" {
					return true
				}
				if of, ok := name.X.(*ast.Ident); !ok || of.Name != "lazyregexp" {
					return true
				}
				found++
				literal, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: a pattern is not a literal, so nothing shows before its first use that it compiles", path)
					return true
				}
				pattern, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := regexp.Compile(pattern); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 50 {
		t.Errorf("found %d patterns, too few for the whole program", found)
	}
}

// An expression that the program declares costs a start nothing: it holds its pattern only until somebody matches.
func TestAnExpressionIsCompiledAtItsFirstUse(t *testing.T) {
	t.Parallel()
	wrong := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("the first use did not compile the pattern")
		}
	}()
	wrong.MatchString("")
}

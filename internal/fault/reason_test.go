package fault_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
)

func TestReason(t *testing.T) {
	t.Parallel()
	plain := fault.New(fault.NotFound, "there is no thread x", "")
	if plain.Reason() != "NOT_FOUND" {
		t.Errorf("without one it is %s", plain.Reason())
	}
	if given := plain.WithReason(fault.ThreadClosed); given.Reason() != fault.ThreadClosed || plain.Reason() != "NOT_FOUND" || given.Body().Reason != fault.ThreadClosed {
		t.Errorf("with one it is %s, and before %s", given.Reason(), plain.Reason())
	}
}

// docs/errors.md has a line for each reason and each code.
func TestThePageOfErrors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range fault.Reasons {
		lines = append(lines, fmt.Sprintf("| `%s` | `%s` | %s |", r.Reason, r.Code, r.Meaning))
	}
	for _, c := range codes[:len(codes)-1] {
		lines = append(lines, fmt.Sprintf("| `%s` | %d | %d |", c.code, c.http, c.exit))
	}
	for _, line := range lines {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the page lacks the line\n%s", line)
		}
	}
	if n := strings.Count(string(text), "\n| `"); n != len(lines) {
		t.Errorf("the page has %d lines of reasons and codes, want %d", n, len(lines))
	}
}

// Each error of the program with a reason has the code that the table gives for that reason, and each reason of the
// table is used.
func TestReasonsComeWithTheirCodes(t *testing.T) {
	t.Parallel()
	codeOf, used := map[string]string{}, map[string]bool{} // by the names of the constants
	names := constants(t)
	for _, r := range fault.Reasons {
		codeOf[names[string(r.Reason)]] = names[string(r.Code)]
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != "../.."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			reason, code := given(n)
			if reason == "" {
				return true
			}
			used[reason] = true
			if codeOf[reason] != code {
				t.Errorf("%s: an error with the code %s has the reason %s, which comes with %s", path, code, reason, codeOf[reason])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for reason := range codeOf {
		if !used[reason] {
			t.Errorf("no error has the reason %s", reason)
		}
	}
}

// given returns the names of the constants in fault.New(fault.CODE, …).WithReason(fault.REASON).
func given(n ast.Node) (reason, code string) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", ""
	}
	as, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || as.Sel.Name != "WithReason" {
		return "", ""
	}
	made, ok := as.X.(*ast.CallExpr)
	if !ok || len(made.Args) < 2 {
		return "", ""
	}
	return constant(call.Args[0]), constant(made.Args[0])
}

// constant returns the name in fault.NAME.
func constant(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if from, ok := s.X.(*ast.Ident); !ok || from.Name != "fault" {
		return ""
	}
	return s.Sel.Name
}

// constants returns the names of this package's constants by their values.
func constants(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range []string{"code.go", "reason.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if text, ok := v.Values[0].(*ast.BasicLit); ok {
					found[strings.Trim(text.Value, `"`)] = v.Names[0].Name
				}
			}
			return true
		})
	}
	return found
}

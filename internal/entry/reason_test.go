package entry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Every reason has its own explanation, so that no page and no verb needs one.
func TestReasonsAreExplained(t *testing.T) {
	t.Parallel()
	reasons := declaredReasons(t)
	if len(reasons) < 15 {
		t.Fatalf("only %d reasons are declared: %v", len(reasons), reasons)
	}
	said := map[string]entry.Reason{}
	for _, r := range reasons {
		text := r.Explain()
		if len(text) < 10 || !strings.HasSuffix(text, ".") || strings.Contains(text, "does not know") {
			t.Errorf("%s is explained by %q", r, text)
		}
		if other, twice := said[text]; twice {
			t.Errorf("%s and %s are explained by the same sentence", r, other)
		}
		said[text] = r
	}
	if text := entry.Reason("of_the_future").Explain(); !strings.Contains(text, "of_the_future") {
		t.Errorf("a reason of another version is explained by %q", text)
	}
}

// declaredReasons reads the constants of type Reason from the source, so that this test cannot miss one.
func declaredReasons(t *testing.T) (reasons []entry.Reason) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		if consts, ok := decl.(*ast.GenDecl); ok && consts.Tok == token.CONST {
			for _, spec := range consts.Specs {
				text, err := strconv.Unquote(spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				reasons = append(reasons, entry.Reason(text))
			}
		}
	}
	return reasons
}

package web_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A page shows the services' errors. Their next steps are written for all clients, and some name commands or procedures that
// a reader of a page does not have. The test reads the steps from the services' source, so that it covers new ones.
func TestNoErrorOfAServiceAdvisesWhatAPageCannotDo(t *testing.T) {
	t.Parallel()
	foreign := regexp.MustCompile(`\barbe [a-z-]+|with the command|\b(` + strings.Join(procedures(), "|") + `)\b`)
	refusals := refusalsOf(t, "artifact", "auth", "dispatch", "entry", "house", "live", "rpc", "sandbox", "stream", "stream/store", "thread")
	f := newFake()
	f.thread("advice02", "Advice")
	c := ada(t, f)
	replaced := 0
	for _, r := range refusals {
		if foreign.MatchString(r.next) {
			replaced++
		}
		f.failWith(refused(r.code, "this is refused: "+r.message, r.next))
		_, text := c.post("/threads/advice02/entries", url.Values{"entry": {"abcdefgh"}, "text": {"hello"}})
		_, shown, found := strings.Cut(text, "This is refused:")
		shown, _, _ = strings.Cut(shown, "<form")
		_, step, _ := strings.Cut(shown, "</h1>")
		if !found || foreign.MatchString(step) {
			t.Errorf("%s: the page says %q", r.at, shown)
		}
	}
	if len(refusals) < 100 || replaced < 10 {
		t.Errorf("it saw %d refusals, and %d of them name a command or a procedure", len(refusals), replaced)
	}
	for next, want := range map[string]string{
		"ask an owner; arbe house list shows your role":                                              "<p>Ask an owner.</p>",
		"name one with the command, set the thread's, or set the house's default environment":        "under Members and settings.</p>",
		"get a new login link with: arbe login, or use an API key that is valid":                     "<p>Log in with a new link.</p>",
		"ask for a new token; renew it before it expires, with RenewThreadToken or arbe token renew": "<p>Ask for a new token.</p>",
	} {
		code := connect.CodeUnauthenticated
		if strings.Contains(next, "environment") {
			code = connect.CodeFailedPrecondition
		}
		f.failWith(refused(code, "there is no environment", next))
		_, text := c.post("/threads/advice02/entries", url.Values{"entry": {"abcdefgh"}, "text": {"hello"}})
		contains(t, text, want)
	}
}

// procedures returns the names of all API procedures that are not plain words.
func procedures() (names []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if name := string(methods.Get(j).Name()); strings.ContainsAny(name[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// refusal is an error that a service may return.
type refusal struct {
	at            string
	code          connect.Code
	message, next string
}

// refusalsOf returns the errors in the source of internal packages whose next step is written there.
func refusalsOf(t *testing.T, packages ...string) (list []refusal) {
	t.Helper()
	codes := map[string]fault.Code{
		"Invalid": fault.Invalid, "Unauthenticated": fault.Unauthenticated, "Forbidden": fault.Forbidden, "NotFound": fault.NotFound,
		"Exists": fault.Exists, "Precondition": fault.Precondition, "Aborted": fault.Aborted, "OutOfRange": fault.OutOfRange,
		"Exhausted": fault.Exhausted, "Unavailable": fault.Unavailable, "Unimplemented": fault.Unimplemented,
	}
	for _, pkg := range packages {
		files, err := filepath.Glob("../internal/" + pkg + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("package %s: %d files, %v", pkg, len(files), err)
		}
		for _, name := range files {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				message, next := 0, 0
				switch name := called(call); name {
				case "fault.New":
					message, next = 1, 2
				case "fault.Newf":
					message, next = 2, 1
				default:
					return true
				}
				code, _ := call.Args[0].(*ast.SelectorExpr)
				if code == nil || codes[code.Sel.Name] == "" || strings.HasSuffix(name, "_test.go") {
					return true
				}
				r := refusal{at: set.Position(call.Pos()).String(), message: literals(call.Args[message]), next: literals(call.Args[next])}
				if err := r.code.UnmarshalText([]byte(codes[code.Sel.Name])); err != nil {
					t.Fatal(err)
				}
				list = append(list, r)
				return true
			})
		}
	}
	return list
}

// called returns the name of the called function, such as fault.New.
func called(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// literals returns the text literals in an expression.
func literals(e ast.Expr) string {
	var b strings.Builder
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			b.WriteString(text)
		}
		return true
	})
	return b.String()
}

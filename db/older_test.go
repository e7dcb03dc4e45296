package db_test

import (
	"archive/tar"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
)

// A rolling upgrade migrates the database while servers of the version before still use it. Each of their queries must
// therefore work with this version's schema. make upgrade-test runs such servers.
func TestQueriesOfTheVersionBeforeWorkWithThisSchema(t *testing.T) {
	t.Parallel()
	commit := dbtest.OlderCommit(t)
	queries := queriesOf(t, commit)
	if len(queries) < 100 {
		t.Fatalf("%s has %d queries", commit, len(queries))
	}
	conn := dbtest.New(t).Owner(t)
	for name, text := range queries {
		if _, err := conn.Prepare(t.Context(), name, text); err != nil {
			t.Errorf("%s of %s does not work: %v", name, commit, err)
		}
	}
}

// queriesOf returns the generated queries of a commit, by name.
func queriesOf(t *testing.T, commit string) map[string]string {
	t.Helper()
	archive, err := exec.CommandContext(t.Context(), "git", "-C", "..", "archive", commit, "db/query").Output()
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		file, err := files.Next()
		if err == io.EOF {
			return queries
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file.Name, ".sql.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name, files, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && strings.HasPrefix(text.Value, "`-- name: ") {
				query, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				queries[strings.Fields(query)[2]] = query
			}
			return true
		})
	}
}

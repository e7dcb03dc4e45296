package server_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The Go client is a module of its own. A program that uses it links these modules and no others, and needs a Go version two
// releases older than the server's. go vet reports what the standard library added since, because go.mod names that version.
func TestTheGoClientIsAModuleWithFewDependencies(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./arbe")
	list.Dir = "../../proto"
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	want := []string{
		"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go",
		"connectrpc.com/connect",
		"github.com/arbe-dev/arbe/proto",
		"github.com/gorilla/websocket",
		"google.golang.org/protobuf",
	}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("it links the modules %q, want %q", got, want)
	}
	page := read(t, "../../docs/go-client.md")
	for _, name := range want {
		if !strings.Contains(page, name) {
			t.Errorf("docs/go-client.md does not name %s", name)
		}
	}
	client, server := goVersion(t, "../../proto/go.mod"), goVersion(t, "../../go.mod")
	if client > server-2 || !strings.Contains(page, "It needs Go 1."+strconv.Itoa(client)+",") {
		t.Errorf("it needs Go 1.%d, the server Go 1.%d, and docs/go-client.md may say something else", client, server)
	}
}

// goVersion returns N of the Go version 1.N that a module needs.
func goVersion(t *testing.T, file string) int {
	t.Helper()
	n, err := strconv.Atoi(regexp.MustCompile(`(?m)^go 1\.(\d+)`).FindStringSubmatch(read(t, file))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

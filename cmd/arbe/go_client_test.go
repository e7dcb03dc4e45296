package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The packages that the examples of docs/go-client.md use without importing them, because only the first one is a whole program.
var imported = map[string]string{
	"arbe":    `"github.com/arbe-dev/arbe/proto/arbe"`,
	"arbev1":  `arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"`,
	"connect": `"connectrpc.com/connect"`,
	"context": `"context"`,
	"fmt":     `"fmt"`,
	"os":      `"os"`,
	"strings": `"strings"`,
}

// calls calls the functions of the page.
const calls = `package main

import (
	"context"
	"log"
	"os"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func main() {
	ctx, c := context.Background(), arbe.New(os.Getenv("ARBE_HOST"), os.Getenv("ARBE_TOKEN"))
	thread, house := os.Args[2], os.Args[3]
	err := map[string]func() error{
		"runCommand":  func() error { return runCommand(ctx, c, thread) },
		"ask":         func() error { return ask(ctx, c, thread) },
		"listThreads": func() error { return listThreads(ctx, c, house) },
		"missing":     func() error { return missing(ctx, c) },
	}[os.Args[1]]()
	if err != nil {
		log.Fatal(err)
	}
}
`

// The examples of docs/go-client.md compile in a module that requires only the client's, and do what the page says.
func TestExamplesOfTheGoClient(t *testing.T) {
	t.Parallel()
	_, settings := modelServer(t)
	server := startUp(t, settings...)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../../docs/go-client.md"), -1)
	want := []struct{ function, prints string }{
		{"runCommand", `^SOME INPUT\nexit code 3\n$`},
		{"ask", `^answered The build is `},
		{"listThreads", `(?m)^\S+ the build$`},
		{"missing", `^NOT_FOUND .+\n$`},
	}
	if len(blocks) != 1+len(want) {
		t.Fatalf("the page has %d examples, want %d", len(blocks), 1+len(want))
	}
	first := example(t, server, fstest.MapFS{"main.go": {Data: []byte(blocks[0][1])}})
	if said := first(); !regexp.MustCompile(`^\d+ the build is red\n$`).MatchString(said) {
		t.Fatalf("the first example prints %q", said)
	}
	files := fstest.MapFS{"main.go": {Data: []byte(calls)}}
	for i, w := range want {
		code := blocks[1+i][1]
		if !strings.HasPrefix(code, "func "+w.function+"(") {
			t.Fatalf("example %d is %q, want the function %s", 1+i, code, w.function)
		}
		files[w.function+".go"] = &fstest.MapFile{Data: []byte(inAFile(code))}
	}
	call := example(t, server, files)
	c := arbe.New(server.host, server.token)
	houses, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := houses.GetHouses()[0].GetId()
	threads, err := c.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: house})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(threads.GetThreads(), func(t *arbev1.Thread) bool { return t.GetName() == "the build" })
	id := threads.GetThreads()[i].GetId()
	for _, w := range want {
		if _, err := exec.LookPath("runc"); w.function == "runCommand" && err != nil {
			continue
		}
		if said := call(w.function, id, house); !regexp.MustCompile(w.prints).MatchString(said) {
			t.Errorf("%s prints %q, want %s", w.function, said, w.prints)
		}
	}
}

// inAFile returns a file with a function, and with the imports that it uses.
func inAFile(code string) string {
	var used []string
	for name, spec := range imported {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(code) {
			used = append(used, spec)
		}
	}
	slices.Sort(used)
	return "package main\n\nimport (\n" + strings.Join(used, "\n") + "\n)\n\n" + code
}

// example builds a program in another module, and returns a function that runs it and returns what it prints.
func example(t *testing.T, server *upServer, program fstest.MapFS) func(args ...string) string {
	t.Helper()
	binary := buildInAnotherModule(t, program)
	return func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token)
		var failed strings.Builder
		cmd.Stderr = &failed
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v ends with %v: %s", args, err, failed.String())
		}
		return string(said)
	}
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The examples of docs/curl.md work in their order, with the ids that each returns.
func TestExamplesOfCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	page, err := os.ReadFile("../../docs/curl.md")
	if err != nil {
		t.Fatal(err)
	}
	server := startUp(t)
	env := append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token, "http_proxy=", "NO_PROXY=*")
	// What each example returns, and the variable in which the page keeps an id from it.
	examples := []struct{ answers, id, keeps string }{
		{`^\{"houses":\[\{"id":`, `"id":"([^"]+)"`, "HOUSE"},
		{`"name":"the build"`, `"id":"([^"]+)"`, "THREAD"},
		{`the build is red`, "", ""},
		{`"text":"the build is red"`, "", ""},
		{`^\{"code":"not_found",.*"debug":\{.*"reason":"NOT_FOUND"`, "", ""},
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != len(examples) {
		t.Fatalf("the page has %d examples, want %d", len(blocks), len(examples))
	}
	for i, want := range examples {
		line := exec.Command("sh", "-eu", "-c", blocks[i][1])
		line.Env = env
		answer, err := line.Output()
		// Programs must not rely on the spaces that an encoder adds to messages.
		text := regexp.MustCompile(`([,:]) +`).ReplaceAllString(string(answer), "$1")
		if err != nil || !regexp.MustCompile(want.answers).MatchString(text) {
			t.Fatalf("%s answers %q (%v), want %s", blocks[i][1], answer, err, want.answers)
		}
		if want.keeps != "" {
			env = append(env, want.keeps+"="+regexp.MustCompile(want.id).FindStringSubmatch(text)[1])
		}
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s answers no JSON but %q", blocks[i][1], line)
			}
		}
	}
}

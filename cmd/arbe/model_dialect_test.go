package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// TestModelsSpeakTheirOwnDialect asks bots that make a tool call, in each dialect, at base URLs of the installation and at
// servers that a house adds. Keys are tested before they are stored, and an unlisted model is refused.
func TestModelsSpeakTheirOwnDialect(t *testing.T) {
	t.Parallel()
	const key = "sk-of-the-lab-5be1"
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "answered as " + string(r.Dialect)}
		}
		return modeltest.Reply{Thinking: "I look.", Text: "Looking.", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}}
	})
	server := startUp(t, "ARBE_MODEL=", "OLLAMA_HOST=", "ARBE_MODEL_PRIVATE_HOSTS=127.0.0.1",
		"ANTHROPIC_API_KEY=sk-1", "ANTHROPIC_BASE_URL="+models.URL,
		"OPENAI_API_KEY=sk-2", "OPENAI_BASE_URL="+models.URL+"/v1", "ARBE_OPENAI_DIALECT=responses",
		"GEMINI_API_KEY=sk-3", "GOOGLE_GEMINI_BASE_URL="+models.URL)
	home := t.TempDir()
	run := func(stdin string, args ...string) (out, said string, err error) {
		cmd := exec.Command("arbe", args...)
		cmd.Env = append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token, "HOME="+home)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		err = cmd.Run()
		if strings.Contains(stdout.String()+stderr.String(), "sk-wrong") {
			t.Errorf("%v prints the key: %s%s", args, stdout.String(), stderr.String())
		}
		return stdout.String(), stderr.String(), err
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, said, err := run(stdin, args...)
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, said)
		}
		return out
	}
	asks := func(ref, dialect, key string) {
		t.Helper()
		must("", "model", "default", ref)
		if out := must("", "ask", "what is there?"); !strings.Contains(out, "answered as "+dialect) {
			t.Errorf("%s says %q, want that it speaks %s", ref, out, dialect)
		}
		if all := models.Requests(); all[len(all)-1].Key != key {
			t.Errorf("%s is asked with %s, want %s", ref, all[len(all)-1].Key, key)
		}
	}
	asks("anthropic/claude-x", "messages", "sk-1")
	asks("openai/gpt-x", "responses", "sk-2")
	asks("google/gemini-x", "gemini", "sk-3")

	models.Offer(key, "large", "small")
	for dialect, path := range map[string]string{"chat": "/v1", "messages": "", "responses": "/v1", "gemini": "/v1beta"} {
		name, secret := "lab-"+dialect, "KEY_"+strings.ToUpper(dialect)
		if _, said, err := run("sk-wrong-7c02", "secret", "set", secret); err != nil { // it is not yet a key of models
			t.Fatal(err, said)
		}
		_, said, err := run("", "model", "add", name, models.URL+path, "--key", secret, "--dialect", dialect)
		if exit, is := err.(*exec.ExitError); !is || exit.ExitCode() != 2 || !strings.Contains(said, name+" does not accept the key: ") || !strings.Contains(said, "nothing was changed") {
			t.Errorf("%s with a wrong key: %v: %s", dialect, err, said)
		}
		must(key, "secret", "set", secret)
		if out := must("", "model", "add", name, models.URL+path, "--key", secret, "--dialect", dialect); !strings.Contains(out, "("+dialect+")") || !strings.Contains(out, name+" accepts the key and lists 2 models. The bots of ") {
			t.Errorf("adding %s says %q", name, out)
		}
		_, said, err = run("", "model", "default", name+"/larg")
		if exit, is := err.(*exec.ExitError); !is || exit.ExitCode() != 2 || !strings.Contains(said, `has no model "larg" for this key; use large`) {
			t.Errorf("a model that %s does not have: %v: %s", dialect, err, said)
		}
		asks(name+"/large", dialect, key)
		if out := must("", "model", "list", name); !strings.Contains(out, name+"/small") {
			t.Errorf("it lists %q", out)
		}
	}
	_, said, err := run("sk-wrong-7c03", "secret", "set", "KEY_CHAT")
	if exit, is := err.(*exec.ExitError); !is || exit.ExitCode() != 2 || !strings.Contains(said, "value: lab-chat does not accept the key: ") {
		t.Errorf("a wrong key of a server that is there: %v: %s", err, said)
	}
	asks("lab-chat/small", "chat", key)
	for _, r := range models.Requests() {
		if strings.HasPrefix(r.Key, "sk-wrong") {
			t.Error("a model was asked with a wrong key")
		}
	}
}

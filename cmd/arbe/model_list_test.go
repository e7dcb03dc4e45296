package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Keys in the operator's environment are listed by the names of their variables, and no key is ever printed.
func TestModelListSaysWhereKeysComeFrom(t *testing.T) {
	t.Parallel()
	keys := []struct{ variable, endpoint, key string }{
		{"ANTHROPIC_API_KEY", "anthropic", "sk-ant-planted-31c7d0"},
		{"OPENAI_API_KEY", "openai", "sk-proj-planted-8e02fa"},
		{"OPENROUTER_API_KEY", "openrouter", "sk-or-planted-b94d16"},
		{"GEMINI_API_KEY", "google", "AIza-planted-57aa3e"},
	}
	settings := []string{"ARBE_MODEL=", "ANTHROPIC_BASE_URL=", "OPENAI_BASE_URL=", "OLLAMA_HOST="}
	for _, k := range keys {
		settings = append(settings, k.variable+"="+k.key)
	}
	server := startUp(t, settings...)
	list := func(t *testing.T, flags ...string) string {
		t.Helper()
		cmd := exec.Command("arbe", append([]string{"model", "list"}, flags...)...)
		cmd.Env = append(os.Environ(), "ARBE_HOST="+server.host, "ARBE_TOKEN="+server.token, "HOME="+t.TempDir())
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		for _, k := range keys {
			if _, tail, _ := strings.Cut(k.key, "planted-"); strings.Contains(out.String()+said.String(), tail) {
				t.Errorf("it prints the key of %s: %s%s", k.endpoint, out.String(), said.String())
			}
		}
		return out.String()
	}
	t.Run("in a pipe", func(t *testing.T) {
		t.Parallel()
		lines := strings.Split(list(t), "\n")
		for i, k := range keys {
			at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, k.endpoint+" ") })
			if at < 0 {
				t.Errorf("%s is not in %q", k.endpoint, lines)
				continue
			}
			if got := strings.Fields(lines[at]); got[1] != k.variable {
				t.Errorf("of %s it says %q, want that its key is from %s", k.endpoint, got, k.variable)
			}
			if isDefault := strings.Contains(lines[at], "default: "); isDefault != (i == 0) {
				t.Errorf("of %s, number %d of the keys, it says %q", k.endpoint, i, lines[at])
			}
		}
	})
	t.Run("as names alone", func(t *testing.T) {
		t.Parallel()
		names := strings.Fields(list(t, "--quiet"))
		for _, k := range keys {
			if !slices.Contains(names, k.endpoint) {
				t.Errorf("%s is not in %q", k.endpoint, names)
			}
		}
	})
	t.Run("as JSON", func(t *testing.T) {
		t.Parallel()
		var views []endpointView
		if err := json.Unmarshal([]byte(list(t, "--json")), &views); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			at := slices.IndexFunc(views, func(v endpointView) bool { return v.Name == k.endpoint })
			if at < 0 {
				t.Errorf("%s is not in %+v", k.endpoint, views)
			} else if v := views[at]; v.Source != k.variable || v.Own || v.SecretName != "" || v.Problem != "" || v.DefaultModel == "" {
				t.Errorf("of %s it says %+v", k.endpoint, v)
			}
		}
	})
}

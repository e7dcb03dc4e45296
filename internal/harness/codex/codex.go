// Package codex is the harness of Codex, the coding agent of OpenAI.
//
// It runs codex exec, which takes one prompt on its standard input. A later prompt continues its session. Codex only speaks
// the responses dialect.
package codex

import (
	_ "embed"
	"encoding/json"
	"path"
	"runtime"
	"strings"

	"github.com/arbe-dev/arbe/internal/harness"
)

// name is the runtime's name in entries.
const name = "codex"

// Version is the version that Install installs.
const Version = "0.169.0"

//go:embed install.sh
var install string

// Harness is Codex. The zero value is ready to use.
type Harness struct{}

// Info describes Codex.
func (Harness) Info() harness.Info {
	return harness.Info{Name: name, Title: "Codex", Version: Version, Dialects: []harness.Dialect{harness.Responses},
		Interrupt: true, SameBox: true, FreshBox: true,
		Limits: "what is said while it works is its next prompt, it cannot ask people, its text appears in whole answers, and it asks only models that speak responses"}
}

// Install installs Codex with npm.
func (Harness) Install() harness.Install {
	return harness.Install{Script: "VERSION=" + Version + "\n" + install, Hosts: []string{"registry.npmjs.org"}, Arguments: []string{"--version"}}
}

// maxPrompt is the number of characters that Codex accepts.
const maxPrompt = 1 << 20

// keyName is the variable with the model's key.
const keyName = "ARBE_CODEX_KEY"

// triple is Codex's name for the machine's platform.
func triple() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-unknown-linux-musl"
	}
	return "x86_64-unknown-linux-musl"
}

// Start starts codex exec. Codex does not read the repository's configuration, because the directory is not trusted.
func (Harness) Start(job harness.Job, session, prompt string) (harness.Start, error) {
	if strings.TrimSpace(prompt) == "" {
		return harness.Start{}, harness.ErrNoPrompt
	}
	if len(prompt) > maxPrompt {
		prompt = harness.Middle(prompt, maxPrompt-200)
	}
	argv := []string{path.Join(job.Program, "node_modules/codex-native/vendor", triple(), "bin/codex"), "exec", "--json", "--skip-git-repo-check",
		"--dangerously-bypass-approvals-and-sandbox"}
	if session != "" {
		argv = append(argv, "resume", session)
	}
	files := []harness.File{{Path: "codex/config.toml", Content: config(job)}, {Path: "codex/AGENTS.md", Content: []byte(job.Instructions)}}
	return harness.Start{Argv: append(argv, "-"), Files: files, Input: []byte(prompt), Session: session,
		Env: []string{"CODEX_HOME=" + path.Join(job.Session, "codex"), "OPENAI_API_KEY", "CODEX_API_KEY", "RUST_LOG", keyName + "=" + job.Model.Key}}, nil
}

// config returns Codex's configuration: its model, and nothing that reaches other hosts.
func config(job harness.Job) []byte {
	var b strings.Builder
	set := func(name, value string) { b.WriteString(name + " = " + value + "\n") }
	set("model", quote(job.Model.ID))
	set("model_provider", `"arbe"`)
	if job.Model.ContextWindow > 0 {
		text, _ := json.Marshal(job.Model.ContextWindow) // a number
		set("model_context_window", string(text))
	}
	b.WriteString(`check_for_update_on_startup = false
web_search = "disabled"
project_doc_max_bytes = 65536
[features]
plugins = false
goals = false
[analytics]
enabled = false
[otel]
metrics_exporter = "none"
[model_providers.arbe]
name = "arbe"
env_key = "` + keyName + `"
wire_api = "responses"
request_max_retries = 4
stream_max_retries = 5
stream_idle_timeout_ms = 300000
`)
	set("base_url", quote(job.Model.BaseURL+"/v1"))
	b.WriteString("[projects." + quote(job.Dir) + "]\ntrust_level = \"untrusted\"\n")
	return []byte(b.String())
}

// quote returns a text as a TOML string, whose escapes are those of JSON.
func quote(text string) string {
	out, err := json.Marshal(strings.ToValidUTF8(text, ""))
	if err != nil {
		return `""` // cannot happen for a string
	}
	return string(out)
}

// Package codex is the harness of Codex, the coding agent of OpenAI.
//
// It runs codex app-server, which speaks JSON-RPC, one message per line, on its standard input and output. In its words, a
// thread is a conversation, a turn is the work on a prompt, and items are the parts of a turn: texts, thoughts and tool calls.
// Codex only speaks the responses dialect.
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
		Steer: true, Interrupt: true, Asks: true, SameBox: true, FreshBox: true,
		Limits: "it asks only models that speak responses; it starts no subagents if anything needs a person's approval, and what it types into a program that runs needs none; summaries that it makes are not shown"}
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

// firstID is the id of the first request, which Start sends.
const firstID = 1

// Start starts codex app-server. The reader sends the prompt once there is a thread. Codex does not read the repository's
// configuration, because the directory is not trusted.
func (Harness) Start(job harness.Job, session, prompt string) (harness.Start, error) {
	if strings.TrimSpace(prompt) == "" {
		return harness.Start{}, harness.ErrNoPrompt
	}
	argv := []string{path.Join(job.Program, "node_modules/codex-native/vendor", triple(), "bin/codex"), "app-server"}
	files := []harness.File{{Path: "codex/config.toml", Content: config(job)}, {Path: "codex/AGENTS.md", Content: []byte(job.Instructions)}}
	begin := request(firstID, "initialize", object{"clientInfo": object{"name": "arbe", "title": "arbe", "version": "1"},
		"capabilities": object{"experimentalApi": false, "requestAttestation": false, "optOutNotificationMethods": unread}})
	return harness.Start{Argv: argv, Files: files, Input: begin, Open: true, Session: session,
		Env: []string{"CODEX_HOME=" + path.Join(job.Session, "codex"), "OPENAI_API_KEY", "CODEX_API_KEY", "RUST_LOG", keyName + "=" + job.Model.Key}}, nil
}

// unread are messages that Codex need not send. They repeat what others say, and can be long.
var unread = []string{"item/commandExecution/outputDelta", "item/fileChange/patchUpdated", "turn/diff/updated", "thread/started"}

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
suppress_unstable_features_warning = true
[features]
plugins = false
goals = false
default_mode_request_user_input = true
`)
	if len(job.Ask) > 0 {
		b.WriteString("multi_agent = false\n") // a subagent's questions name calls that the transcript does not have
	}
	b.WriteString(`[analytics]
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

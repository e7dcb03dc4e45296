// Package pi is the harness of pi, the coding agent of earendil-works.
//
// It runs pi in its RPC mode: prompts are lines of JSON on its standard input, so one can be sent while pi works. In that
// mode pi reports a provider's failure only in its events, and exits with 0.
package pi

import (
	_ "embed"
	"encoding/json"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/harness"
)

// name is the runtime's name in entries.
const name = "pi"

// Version is the version that Install installs.
const Version = "0.87.1"

//go:embed install.sh
var install string

// npm's files of the installation. Without the lock, npm takes the newest versions of the packages below pi: a version that
// its publisher broke today, or that a mirror does not have yet, and each day another.
var (
	//go:embed npm/package.json
	packageFile string
	//go:embed npm/package-lock.json
	lock string
)

// Harness is pi. The zero value is ready to use.
type Harness struct{}

// Info describes pi.
func (Harness) Info() harness.Info {
	return harness.Info{Name: name, Title: "pi", Version: Version, Dialects: []harness.Dialect{harness.Messages, harness.Responses, harness.Chat},
		Steer: true, Interrupt: true, SameBox: true, FreshBox: true, Limits: "it cannot ask people"}
}

// Install installs pi and the Node.js that it needs with npm.
func (Harness) Install() harness.Install {
	script := "VERSION=" + Version + "\nPACKAGE='" + packageFile + "'\nLOCK='" + lock + "'\n" + install
	return harness.Install{Script: script, Hosts: []string{"registry.npmjs.org"}}
}

// api maps the dialects to pi's names for them.
var api = map[harness.Dialect]string{
	harness.Chat:      "openai-completions",
	harness.Messages:  "anthropic-messages",
	harness.Responses: "openai-responses",
}

// provider is pi's name for the model's server, and keyName the variable with its key.
const (
	provider = "arbe"
	keyName  = "ARBE_PI_KEY"
)

// sessionFile is the session file in the job's directory.
const sessionFile = "session.jsonl"

// Start starts pi in RPC mode. In the repository, pi reads AGENTS.md and runs nothing: no extensions (-ne), no skills or
// prompt templates, which prompts could name (-ns, -np), and no settings (-na).
func (h Harness) Start(job harness.Job, session, prompt string) (harness.Start, error) {
	if strings.TrimSpace(prompt) == "" {
		return harness.Start{}, harness.ErrNoPrompt
	}
	files, err := h.config(job)
	if err != nil {
		return harness.Start{}, err
	}
	if session == "" {
		session = sessionFile
	}
	argv := []string{path.Join(job.Program, "node_modules/.bin/node"), path.Join(job.Program, "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"),
		"--mode", "rpc", "--provider", provider, "--model", job.Model.ID, "-ne", "-ns", "-np", "-na", "--session", path.Join(job.Session, session)}
	if job.Instructions != "" {
		files = append(files, harness.File{Path: "instructions.md", Content: []byte(job.Instructions)})
		argv = append(argv, "--append-system-prompt", path.Join(job.Session, "instructions.md"))
	}
	return harness.Start{Argv: argv, Files: files, Input: command("prompt", prompt), Open: true, Session: session,
		Env: []string{"PI_CODING_AGENT_DIR=" + path.Join(job.Session, "agent"), "PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0",
			"PI_PACKAGE_DIR", "PI_CODING_AGENT_SESSION_DIR", "NODE_OPTIONS", keyName + "=" + job.Model.Key}}, nil
}

type object map[string]any

// config returns pi's configuration: the address of its model.
func (Harness) config(job harness.Job) ([]harness.File, error) {
	m := job.Model
	base := m.BaseURL
	if m.Dialect != harness.Messages {
		base += "/v1"
	}
	one := object{"id": m.ID}
	if m.ContextWindow > 0 {
		one["contextWindow"] = m.ContextWindow
	}
	if m.MaxTokens > 0 {
		one["maxTokens"] = m.MaxTokens
	}
	if m.Thinks && m.Dialect == harness.Responses {
		one["reasoning"] = true // otherwise pi sends thinking back without its content, which the provider refuses
	}
	models, err := json.Marshal(object{"providers": object{provider: object{"baseUrl": base, "api": api[m.Dialect], "apiKey": "$" + keyName, "models": []object{one}}}})
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(object{"retry": object{"enabled": true, "maxRetries": 5, "baseDelayMs": 2000}, "defaultProjectTrust": "never",
		"enableInstallTelemetry": false, "cacheWarming": "off", "images": object{"autoResize": true}})
	return []harness.File{{Path: "agent/models.json", Content: models}, {Path: "agent/settings.json", Content: settings}}, err
}

// command returns a line of input.
func command(kind, message string) []byte {
	c := struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Message   string `json:"message,omitempty"`
		Streaming string `json:"streamingBehavior,omitempty"`
	}{ID: kind, Type: kind, Message: message}
	if kind == "prompt" {
		c.Streaming = "steer" // while pi works; otherwise the prompt begins its work
	}
	line, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot happen for strings
	}
	return append(line, '\n')
}

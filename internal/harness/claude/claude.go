// Package claude is the harness of Claude Code, the coding agent of Anthropic.
//
// It runs claude --print with lines of JSON on its standard input, so that it can receive a prompt while it works, and can
// ask people. Claude Code only speaks the messages dialect.
package claude

import (
	_ "embed"
	"encoding/json"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// name is the runtime's name in entries.
const name = "claude-code"

// Version is the version that Install installs.
const Version = "2.1.329"

//go:embed install.sh
var install string

// Harness is Claude Code. The zero value is ready to use.
type Harness struct{}

// Info describes Claude Code.
func (Harness) Info() harness.Info {
	return harness.Info{Name: name, Title: "Claude Code", Version: Version, Dialects: []harness.Dialect{harness.Messages},
		Steer: true, Interrupt: true, Asks: true, SameBox: true, FreshBox: true, Limits: "it asks only models that speak messages"}
}

// Install installs Claude Code with npm.
func (Harness) Install() harness.Install {
	return harness.Install{Script: "VERSION=" + Version + "\n" + install, Hosts: []string{"registry.npmjs.org"}, Arguments: []string{"--version"}}
}

// Start starts claude --print. Claude Code reads neither the repository's settings, which may contain hooks, nor its MCP
// servers.
func (Harness) Start(job harness.Job, session, prompt string) (harness.Start, error) {
	if strings.TrimSpace(prompt) == "" {
		return harness.Start{}, harness.ErrNoPrompt
	}
	argv := []string{path.Join(job.Program, "node_modules/claude-native/claude"), "--print", "--model", job.Model.ID, "--output-format", "stream-json", "--verbose",
		"--input-format", "stream-json", "--replay-user-messages", "--permission-prompt-tool", "stdio",
		"--include-partial-messages", "--dangerously-skip-permissions", "--setting-sources", "user", "--strict-mcp-config",
		"--settings", settings(job)}
	var files []harness.File
	if job.Instructions != "" {
		files = append(files, harness.File{Path: "instructions.md", Content: []byte(job.Instructions)})
		argv = append(argv, "--append-system-prompt-file", path.Join(job.Session, "instructions.md"))
	}
	if session != "" {
		argv = append(argv, "--resume", session)
	} else {
		session = newID()
		argv = append(argv, "--session-id", session)
	}
	return harness.Start{Argv: argv, Files: files, Input: says(prompt), Open: true, Session: session,
		Env: []string{"CLAUDE_CONFIG_DIR=" + path.Join(job.Session, "claude"), "ANTHROPIC_BASE_URL=" + job.Model.BaseURL, "ANTHROPIC_API_KEY=" + job.Model.Key,
			"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDECODE",
			"IS_SANDBOX=1", // otherwise it refuses to work as root
			"ANTHROPIC_SMALL_FAST_MODEL=" + job.Model.ID, "ANTHROPIC_DEFAULT_HAIKU_MODEL=" + job.Model.ID,
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_MAX_RETRIES=6", "API_TIMEOUT_MS=600000", "ENABLE_TOOL_SEARCH=false"}}, nil
}

// settings returns Claude Code's settings: no hooks, and the tools that need a person's approval. The other tools need none.
func settings(job harness.Job) string {
	s := object{"disableAllHooks": true}
	if rules := asked(job.Ask); len(rules) > 0 {
		s["permissions"] = object{"ask": rules}
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen for strings
	}
	return string(text)
}

// own maps arbe's tools to Claude Code's own tools that do the same.
var own = map[string][]string{
	entry.RunCommandTool:  {"Bash", "Monitor"},
	entry.WriteFileTool:   {"Write"},
	entry.EditFileTool:    {"Edit", "NotebookEdit"},
	entry.ReadFileTool:    {"Read"},
	entry.SearchFilesTool: {"Glob", "Grep"},
	entry.FetchTool:       {"WebFetch", "WebSearch"},
}

// asked returns the rules for tools that need approval.
func asked(names []string) (rules []string) {
	for _, name := range names {
		rules = append(rules, own[name]...)
	}
	return rules
}

package acp

import (
	"cmp"
	_ "embed"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// OpenCodeVersion is the version of OpenCode that Install installs.
const OpenCodeVersion = "1.18.33"

//go:embed opencode.sh
var openCodeInstall string

//go:embed opencode_guard.sh
var openCodeGuard string

// OpenCode returns the harness of OpenCode.
//
// In the repository, it reads only AGENTS.md: not opencode.json or .opencode, whose tools and servers it would run. It would
// run plugins whatever its settings are, so it is not started where there are any (opencode_guard.sh). It makes no model
// calls besides those of its work: it does not generate a session title.
func OpenCode() Harness {
	return Harness{profile{
		name: "acp-opencode", title: "OpenCode", version: OpenCodeVersion, dialects: []harness.Dialect{harness.Chat, harness.Messages, harness.Responses},
		install: harness.Install{Script: "VERSION=" + OpenCodeVersion + "\n" + openCodeInstall, Hosts: []string{"registry.npmjs.org"}, Arguments: []string{"--version"}},
		steer:   true, asks: true, start: startOpenCode,
		lacks: "it is not started in a repository with plugins for OpenCode, which it would run; a person's no ends what it does, and the reason is its next prompt; it starts no subagents if anything needs a person's approval",
	}}
}

// openCodeKey is the variable with the model's key.
const openCodeKey = "ARBE_OPENCODE_KEY"

// openCodeClients lists the packages with which OpenCode calls models. All of them are part of its program.
var openCodeClients = map[harness.Dialect]string{
	harness.Chat:      "@ai-sdk/openai-compatible",
	harness.Messages:  "@ai-sdk/anthropic",
	harness.Responses: "@ai-sdk/openai",
}

// openCodeTools maps arbe's tools that need approval to OpenCode's names.
var openCodeTools = own{
	entry.RunCommandTool:  {"bash"},
	entry.WriteFileTool:   {"edit"},
	entry.EditFileTool:    {"edit"},
	entry.ReadFileTool:    {"read"},
	entry.SearchFilesTool: {"glob", "grep", "list"},
	entry.FetchTool:       {"webfetch", "websearch", "codesearch"},
}

// openCodeShell is the shell in which OpenCode runs commands. They see the sandbox's environment, but neither the model's key
// nor the location of OpenCode's configuration.
const openCodeShell = `#!/bin/sh
unset ` + openCodeKey + ` XDG_CONFIG_HOME OPENCODE_CONFIG_CONTENT OPENCODE_DB OPENCODE_TEST_HOME
if command -v bash >/dev/null 2>&1; then exec bash "$@"; fi
exec sh "$@"
`

// openCodeModels is the list of all providers' models, of which OpenCode needs none: its own model is in its configuration.
// Without a list, OpenCode parses the one in its program, which is 40 percent of the work of its start.
const openCodeModels = "{}"

// openCodeInstalled makes OpenCode believe that its plugin interface is installed. Otherwise it would download it at each
// start.
const openCodeInstalled = `{"name":"arbe","lockfileVersion":3,"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}`

func startOpenCode(job harness.Job) (harness.Start, error) {
	config := path.Join(job.Session, "opencode")
	s := harness.Start{
		Argv: []string{"/bin/sh", path.Join(job.Session, "opencode/guard"), job.Dir, path.Join(job.Program, "node_modules/opencode-native/bin/opencode"), "acp", "--pure", "--cwd", job.Dir},
		Files: []harness.File{
			{Path: "opencode/guard", Content: []byte(openCodeGuard)},
			{Path: "opencode/bash", Content: []byte(openCodeShell), Program: true},
			{Path: "opencode/opencode/package-lock.json", Content: []byte(openCodeInstalled)},
			{Path: "opencode/opencode/node_modules/.package-lock.json", Content: []byte("{}")},
			{Path: "opencode/models.json", Content: []byte(openCodeModels)},
		},
		Env: []string{"OPENCODE_CONFIG_CONTENT=" + string(text(openCodeConfig(job))), openCodeKey + "=" + job.Model.Key, "XDG_CONFIG_HOME=" + config,
			"OPENCODE_DB=" + path.Join(job.Session, "opencode.db"), "OPENCODE_TEST_HOME=" + config, // its home directory may have settings, too
			"OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_DISABLE_CLAUDE_CODE=1", "OPENCODE_DISABLE_EXTERNAL_SKILLS=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
			"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_MODELS_PATH=" + path.Join(config, "models.json"), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			"OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_PERMISSION", "OPENCODE_AUTH_CONTENT", "OPENCODE_API_KEY", "OPENCODE_SERVER_PASSWORD", "OPENCODE_ENABLE_QUESTION_TOOL"},
	}
	return s, nil
}

// openCodeConfig returns OpenCode's configuration: its model and no other, and questions only before tools that need
// approval.
func openCodeConfig(job harness.Job) object {
	m := job.Model
	limit := object{"context": cmp.Or(m.ContextWindow, 128_000), "output": cmp.Or(m.MaxTokens, 32_000)}
	name := strings.ReplaceAll(m.ID, "{", "") // a brace would begin a variable
	permission := object{"*": "allow", "question": "deny"}
	for _, tool := range openCodeTools.of(job.Ask) {
		permission[tool] = "ask"
		permission["task"] = "deny" // nobody would see a subagent's question
	}
	return object{
		"provider": object{"arbe": object{"npm": openCodeClients[m.Dialect], "options": object{"baseURL": m.BaseURL + "/v1", "apiKey": "{env:" + openCodeKey + "}"},
			"models": object{name: object{"limit": limit}}}},
		"model": "arbe/" + name, "small_model": "arbe/" + name, "enabled_providers": []string{"arbe"},
		"agent": object{"title": object{"disable": true}},
		"shell": path.Join(job.Session, "opencode/bash"), "permission": permission,
		"instructions": []string{path.Join(job.Session, instructions), path.Join(job.Dir, "AGENTS.md")},
		"share":        "disabled", "autoupdate": false, "snapshot": false, "lsp": false, "formatter": false,
	}
}

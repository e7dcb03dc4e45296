package acp

import (
	_ "embed"
	"fmt"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// GeminiVersion is the version of Gemini CLI that Install installs.
const GeminiVersion = "0.61.0"

//go:embed gemini.sh
var geminiInstall string

//go:embed gemini_start.sh
var geminiStart string

//go:embed gemini_bash.sh
var geminiBash string

// Gemini returns the harness of Gemini CLI.
//
// Gemini CLI treats the repository as untrusted. It ignores the repository's settings, servers, hooks, commands, skills,
// extensions and environment files, and runs none of them. It does not load AGENTS.md by itself, so its instructions ask it to
// read that file. It makes no model calls besides those of its work.
func Gemini() Harness {
	return Harness{profile{
		name: "acp-gemini", title: "Gemini CLI", version: GeminiVersion, dialects: []harness.Dialect{harness.Gemini},
		install: harness.Install{Script: "VERSION=" + GeminiVersion + "\n" + geminiInstall, Hosts: []string{"registry.npmjs.org"}, Arguments: []string{"--version"}},
		asks:    true, repeatsLate: true, headsThoughts: true, tools: geminiTools, toolOf: geminiTool, start: startGemini,
		lacks: "its tool calls have descriptions instead of arguments, and a command that fails looks like one that works; it does not ask about commands that only read; it starts no subagents and searches nothing on the web",
	}}
}

// geminiTools maps arbe's tools that need approval to Gemini CLI's names.
var geminiTools = own{
	entry.RunCommandTool:  {"run_shell_command"},
	entry.WriteFileTool:   {"write_file", "replace"},
	entry.EditFileTool:    {"write_file", "replace"},
	entry.ReadFileTool:    {"read_file", "read_many_files"},
	entry.SearchFilesTool: {"glob", "grep_search", "list_directory"},
	entry.FetchTool:       {"web_fetch"},
}

// geminiDenied lists the tools that the agent is not given: those whose model calls or questions nobody would see, and
// Google's search, which the gateway refuses.
var geminiDenied = []string{"invoke_agent", "activate_skill", "enter_plan_mode", "google_web_search"}

// geminiTool returns the name of a call's tool, with which Gemini CLI begins the call's id.
func geminiTool(id string) string {
	name, _, _ := strings.Cut(id, "__")
	return name
}

func startGemini(job harness.Job) (harness.Start, error) {
	home := path.Join(job.Session, "gemini")
	return harness.Start{
		Argv: []string{"/bin/sh", path.Join(home, "start"), path.Join(home, "bin"), path.Join(job.Program, "node_modules/@google/gemini-cli/bundle/gemini.js"),
			"--acp", "--model=" + job.Model.ID, "--admin-policy=" + path.Join(home, "policy.toml")},
		Files: []harness.File{
			{Path: "gemini/start", Content: []byte(geminiStart)},
			{Path: "gemini/bin/bash", Content: []byte(geminiBash), Program: true},
			{Path: "gemini/policy.toml", Content: []byte(geminiPolicy(job))},
			{Path: "gemini/.gemini/settings.json", Content: text(geminiSettings())},
			{Path: "gemini/.gemini/GEMINI.md", Content: []byte(job.Instructions + "\n\nIf the repository has a file AGENTS.md, read it before you change anything.\n")},
		},
		Env: []string{"GEMINI_CLI_HOME=" + home, "GEMINI_CLI_TRUST_WORKSPACE=false", "GEMINI_CLI_NO_RELAUNCH=true",
			"GEMINI_CLI_SYSTEM_SETTINGS_PATH=" + path.Join(home, "none"), "GEMINI_CLI_SYSTEM_DEFAULTS_PATH=" + path.Join(home, "none"),
			"GEMINI_API_KEY=" + job.Model.Key, "GOOGLE_GEMINI_BASE_URL=" + job.Model.BaseURL,
			"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_API_VERSION", "GEMINI_MODEL", "GEMINI_SANDBOX", "GEMINI_SYSTEM_MD",
			"GEMINI_WRITE_SYSTEM_MD", "GEMINI_CLI_TRUSTED_FOLDERS_PATH", "GITHUB_SHA", "SURFACE"},
	}, nil
}

// geminiSettings returns its settings. Those of the repository are ignored, because GEMINI_CLI_TRUST_WORKSPACE says that the
// repository is not trusted.
func geminiSettings() object {
	off := object{"enabled": false}
	return object{
		"general":      object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 3, "topicUpdateNarration": false},
		"privacy":      object{"usageStatisticsEnabled": false},
		"model":        object{"skipNextSpeakerCheck": true, "disableLoopDetection": true},
		"tools":        object{"shell": object{"enableInteractiveShell": false}},
		"security":     object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": true}},
		"advanced":     object{"ignoreLocalEnv": true},
		"experimental": object{"directWebFetch": true, "topicUpdateNarration": false},
		"telemetry":    off, "ide": off, "hooksConfig": off, "skills": off,
		"admin": object{"mcp": off, "extensions": off, "skills": off},
	}
}

// geminiPolicy returns the rules for tools. Those that need approval ask first, and the others may be used. Gemini CLI asks
// for more, such as git in a repository that is not trusted, and gets a yes.
func geminiPolicy(job harness.Job) string {
	var b strings.Builder
	rule := func(priority int, decision string, tools ...string) {
		fmt.Fprintf(&b, "[[rule]]\ntoolName = %s\ndecision = %q\npriority = %d\n", text(tools), decision, priority)
	}
	rule(1, "allow", "*")
	if tools := geminiTools.of(job.Ask); len(tools) > 0 {
		rule(2, "ask_user", tools...)
	}
	rule(3, "deny", geminiDenied...)
	return b.String()
}

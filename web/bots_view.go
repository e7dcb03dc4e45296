package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

	"github.com/a-h/templ"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/transcript"
)

// botsView is the page of a house's bots, and of their shared cost limit.
type botsView struct {
	Layout layout
	Bots   []*arbev1.Bot
	More   string
	// Used is their cost today. Limit and MemberLimit are the values of the limits' form, and LimitWrong its errors.
	Used               *arbev1.HouseUsage
	Limit, MemberLimit string
	LimitWrong         problems
	// Tools are all tools. Each says whether every bot of the house needs approval for it. AskWrong are the errors of their form.
	Tools    []*arbev1.Tool
	AskWrong problems
}

// botView is the form of one bot.
type botView struct {
	Layout layout
	// Bot is nil in the form of a new one. AtWork is the number of its turns in progress.
	Bot    *arbev1.Bot
	AtWork int
	// Values are the form's values by field, Tools the ticked tools, and Problems the errors.
	Values   map[string]string
	Tools    []string
	Problems problems
	// Ask are the tools ticked as needing approval. Known are all tools. Each says on whose behalf it acts.
	Ask   []string
	Known []*arbev1.Tool
	// Runtimes are the runtimes that a new bot can use.
	Runtimes []*arbev1.Runtime
	// Models are the models of the house; nil if they cannot be read.
	Models *arbev1.ListModelsResponse
	// Waker has the values of the form that adds a policy.
	Waker map[string]string
	// Note says which settings have no effect.
	Note string
	// Saved reports that it has just been saved.
	Saved bool
}

// toolLabels explain the tools of bots in the form.
var toolLabels = map[string]string{
	entry.RunCommandTool:    "Run commands in the thread's sandbox",
	entry.ReadCommandTool:   "Read the output of the thread's commands",
	entry.StopCommandTool:   "Stop its own commands",
	entry.ReadFileTool:      "Read files of the thread's sandbox",
	entry.WriteFileTool:     "Write files of the thread's sandbox",
	entry.EditFileTool:      "Edit files of the thread's sandbox",
	entry.SearchFilesTool:   "Search files of the thread's sandbox",
	entry.ReadThreadTool:    "Read threads of the house",
	entry.ReadArtifactTool:  "Read artifacts of the house",
	entry.ListThreadsTool:   "List the threads",
	entry.SearchEntriesTool: "Search what was said",
	entry.CreateThreadTool:  "Create threads",
	entry.DelegateTaskTool:  "Delegate tasks to coding agents",
	entry.SayTool:           "Say something in other threads",
	entry.FetchTool:         "Fetch public web pages; the servers there see what it asks for",
}

var (
	botLimitFields = []string{"turn_steps", "turn_tokens", "turn_usd", "turn_minutes", "run_usd", "run_minutes", "thread_usd_day", "answer_minutes"}
	botFields      = append([]string{"handle", "name", "runtime", "model", "think", "instructions", "tools", "ask"}, botLimitFields...)
	wakerFields    = []string{"trigger", "delay_ms", "cooldown_ms", "scope_ids", "instructions", "config"}
)

// limitsSet reports whether a limit is set or has an error. The form then unfolds the limits to show it.
func (v botView) limitsSet() bool {
	return slices.ContainsFunc(botLimitFields, func(field string) bool { return v.Values[field] != "" || v.Problems[field] != "" })
}

// action is the address that the form is sent to.
func (v botView) action() string {
	if v.Bot == nil {
		return settingsPath(v.Layout.House.Id, "bots")
	}
	return botPath(v.Layout.House.Id, v.Bot.Id)
}

// models is the field in which the bot's model is chosen.
func (v botView) models() modelPick {
	return modelPick{Name: "model", Label: "Model", Chosen: v.Values["model"], None: houseDefault(v.Models), Groups: groupsOf(v.Models), Problems: v.Problems,
		Disabled: !v.Layout.isOwner(), Help: pricesHelp}
}

// spentText says what the bots of a house have cost today: "$1.20 of $50.00 today".
func spentText(u *arbev1.HouseUsage) string {
	text := fmt.Sprintf("$%.2f of $%.2f today", u.GetUsd(), u.GetUsdLimit())
	if u.GetUsdUnknown() {
		text += ", and calls of models whose price is unknown"
	}
	if limit := u.GetMemberUsdLimit(); limit > 0 {
		text += fmt.Sprintf(". What you asked has cost $%.2f of $%.2f", u.GetMemberUsd(), limit)
	}
	if limit := u.GetPersonUsdLimit(); limit > 0 {
		text += fmt.Sprintf(". With keys of the installation, the houses of its first owner have spent $%.2f of $%.2f", u.GetPersonUsd(), limit)
	}
	if u.GetInstallationSpent() {
		text += fmt.Sprintf(". The $%.2f that all houses together may spend with these keys are spent", u.GetInstallationUsdLimit())
	}
	return text
}

// wakes describes a policy in words.
func wakes(p *arbev1.Policy) string {
	var config struct {
		Scope    []string `json:"scope_ids"`
		Direct   bool     `json:"direct"`
		Delay    int64    `json:"delay_ms"`
		Cooldown int64    `json:"cooldown_ms"`
	}
	_ = json.Unmarshal([]byte(p.Config), &config) // an unreadable one comes from another version, and only its trigger is shown
	seconds := func(ms int64) string { return shortDuration(time.Duration(ms) * time.Millisecond) }
	text := "Another trigger: " + clip(p.Trigger, maxWord)
	switch p.Trigger {
	case "mention":
		text = "Answers when it is mentioned"
	case "always":
		text = "Answers everything that is said"
		if config.Direct {
			text = "Answers direct messages"
		}
	case "ambient":
		text = "Listens, and answers after " + seconds(config.Delay) + " of silence if it has something to add"
	}
	if len(config.Scope) > 0 {
		text += ", in " + clip(strings.Join(config.Scope, ", "), maxWord)
	}
	if config.Cooldown > 0 {
		text += ", at most once in " + seconds(config.Cooldown)
	}
	if len(p.ToolIds) > 0 {
		text += ", with " + clip(strings.Join(p.ToolIds, ", "), maxWord)
	}
	return text
}

// awake summarizes in one line what wakes a bot.
func awake(b *arbev1.Bot) string {
	var words []string
	for _, p := range b.Policies {
		if p.Enabled {
			words = append(words, strings.ToLower(wakes(p)[:1])+wakes(p)[1:])
		}
	}
	if len(words) == 0 {
		return "nothing wakes it"
	}
	return clip(strings.Join(words, "; "), maxWord)
}

// may returns the attributes of a field that only an owner may change.
func (v botView) may(attributes templ.Attributes) templ.Attributes {
	if !v.Layout.isOwner() {
		attributes["readonly"] = true
	}
	return attributes
}

// deletionText says what is deleted with a bot, and what stays.
func (v botView) deletionText() string {
	stops := "It is not working on anything now."
	switch {
	case v.AtWork == 1:
		stops = "It is working on 1 turn, which stops."
	case v.AtWork > 1:
		stops = "It is working on " + grouped(v.AtWork) + " turns, which stop."
	}
	return stops + " It no longer answers, and its API keys are deleted. What it said stays, and its direct messages can still be read."
}

func authorOfBot(b *arbev1.Bot) transcript.Author {
	return authorOf(&arbev1.Agent{Id: b.Id, Kind: "bot", Name: b.Name})
}

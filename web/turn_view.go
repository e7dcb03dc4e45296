package web

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/web/transcript"
)

// nextOf returns what a reader can do after a turn without an answer. It returns "" after a turn that a person stopped.
func nextOf(end entry.TurnEnded) string {
	if end.Outcome == entry.TurnStopped {
		return ""
	}
	return advice(fault.Unavailable, end.Message, clip(end.Next, maxNote))
}

// modelReasons are the reasons of failures that a change of the house's models and keys can fix.
var modelReasons = []string{"no_model", "bad_key", "no_money", "unknown_model", "unreachable", "unreadable"}

// mendOf returns the page on which the cause of a turn without an answer can be fixed, with its path. The path is empty if no
// page can fix it.
func mendOf(v transcript.TurnEnd) (page, path string) {
	end := v.End
	switch {
	case end.Outcome == entry.TurnLimited && (end.Reason == "house_usd_day" || end.Reason == "member_usd_day"):
		return "The house's limit", spendingPath(v.House)
	case end.Outcome == entry.TurnLimited && end.AgentID != "":
		return "The bot's limits", botPath(v.House, end.AgentID) + "#f-" + url.PathEscape(end.Reason)
	case slices.Contains(modelReasons, end.Reason):
		return "Models and keys", settingsPath(v.House, "models")
	}
	return "", ""
}

// workText describes a turn's work and usage: "worked for 40s · 3 commands · $0.02 · anthropic/claude". It returns "" if the
// turn did nothing.
func workText(s *entry.TurnSummary) string {
	if s == nil || s.Steps == 0 && s.Usage == (entry.TurnUsage{}) {
		return ""
	}
	took := "less than a second"
	if d := time.Duration(s.DurationMS) * time.Millisecond; d >= time.Second {
		took = elapsedText(d)
	}
	parts := []string{"worked for " + took}
	switch {
	case s.Commands == 1:
		parts = append(parts, "1 command")
	case s.Commands > 1:
		parts = append(parts, grouped(s.Commands)+" commands")
	}
	parts = append(parts, costText(s.Usage))
	if s.Model != "" {
		parts = append(parts, clip(s.Model, 80))
	}
	return strings.Join(parts, " · ")
}

// costText formats the cost of a turn.
func costText(u entry.TurnUsage) string {
	const cent = 10_000
	dollars := fmt.Sprintf("$%.2f", float64(u.CostMicros)/1e6)
	switch {
	case u.CostUnknown && u.CostMicros > 0:
		return dollars + " and more of unknown price"
	case u.CostUnknown:
		return "unknown price"
	case u.CostMicros > 0 && u.CostMicros < cent:
		return "under $0.01"
	}
	return dollars
}

// callTook returns the duration of a tool call, and tookText that of a command, in milliseconds. Both return "" until the end.
func callTook(v transcript.Call) string {
	if v.Result == nil {
		return ""
	}
	return decimal(v.Result.Took.Milliseconds())
}

func tookText(v transcript.Command) string {
	if v.Result == nil {
		return ""
	}
	return decimal(v.Result.DurationMS)
}

// answerOf returns the turn or run whose tool calls a row shows, or "" for any other row.
func answerOf(r row) string {
	if !r.Work {
		return ""
	}
	return clip(entry.AnswerOf(r.Entry.ID), maxWord)
}

// diffClass returns the class of a line of a unified diff.
func diffClass(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
		return "diff-file"
	case strings.HasPrefix(line, "@@"):
		return "diff-at"
	case strings.HasPrefix(line, "+"):
		return "diff-added"
	case strings.HasPrefix(line, "-"):
		return "diff-removed"
	}
	return ""
}

package web

import (
	"cmp"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// maxKids limits the children of a thread that its page lists. The list shows shownKids of them, and folds the rest.
const maxKids, shownKids = 100, 8

// threadView is a thread's page.
type threadView struct {
	Layout    layout
	Thread    *arbev1.Thread
	Used      *arbev1.ThreadUsage
	Workplace workplace
	Relatives relatives
	// Artifacts are the artifacts of the thread.
	Artifacts artifacts
	Window    window
	// DetailsFolded reports that the reader has hidden the column of details.
	DetailsFolded bool
	// Partner is the name of the bot that answers everything here. It is empty unless the thread is a direct message to a bot.
	Partner string
	// Answers says who answers messages here.
	Answers string
	// Asks are the open requests for approval.
	Asks []transcript.Approval
	// Queue holds the messages that wait for the coding agent that drives the thread.
	Queue queueView
	// People are the names that the composer's menu offers.
	People []*arbev1.Agent
	// Environments are those that the sandbox of a delegated task can have.
	Environments []*arbev1.Environment
	// NewID is the id of the next message, if the form is sent without the script.
	NewID string
}

// workplace is the place where a thread's commands run.
type workplace struct {
	Environment *arbev1.Environment
	// Inherited reports that the environment is the house's default.
	Inherited bool
	Sandbox   *arbev1.Sandbox
}

// relatives are a thread's parent and children, the thread that it was forked from, and its forks.
type relatives struct {
	// Parent is nil if the thread has no parent, or if its parent was deleted.
	Parent *arbev1.Thread
	// Source is nil if the thread is not a fork, or if its source was deleted.
	Source *arbev1.Thread
	// Forks are the most recently active forks. More reports that the thread has more.
	Forks []*arbev1.Thread
	More  bool
	// Children lists those that work or wait, then those that failed, then the others, each latest first. MoreChildren
	// reports that the thread has more.
	Children     []*arbev1.Thread
	MoreChildren bool
}

// withChildren adds children in the order of pages.
func (k *relatives) withChildren(children []*arbev1.Thread) {
	slices.SortFunc(children, func(a, b *arbev1.Thread) int {
		return cmp.Or(cmp.Compare(calm(a), calm(b)), b.CreatedAt.AsTime().Compare(a.CreatedAt.AsTime()), cmp.Compare(a.Id, b.Id))
	})
	if k.Children = children; len(children) > maxKids {
		k.Children, k.MoreChildren = children[:maxKids], true
	}
}

func pinWord(t *arbev1.Thread) string {
	if t.PinnedAt != nil {
		return "Unpin"
	}
	return "Pin"
}

func joinTags(tags []string) string { return strings.Join(tags, ", ") }

// sandboxWord says where a command of this thread would run.
func sandboxWord(b workplace) string {
	switch {
	case b.Sandbox != nil && b.Sandbox.Status == arbev1.SandboxStatus_SANDBOX_STATUS_LIVE:
		return "sandbox " + b.Sandbox.Id
	case b.Environment != nil:
		return "a new sandbox built from " + b.Environment.Name
	}
	return "no sandbox: choose an environment first"
}

// sandboxPillWord returns the state of a sandbox for the head of a thread.
func sandboxPillWord(s *arbev1.Sandbox) string {
	switch s.Status {
	case arbev1.SandboxStatus_SANDBOX_STATUS_LIVE:
		return "live"
	case arbev1.SandboxStatus_SANDBOX_STATUS_PENDING:
		return "starting"
	}
	return "gone"
}

// pillWord says what happens in a thread now: what its coding agent is doing, if one is at work, and otherwise its state.
func pillWord(t *arbev1.Thread) string {
	if state := stateOf(t); state.Class != "running" || t.Running.GetRunEpoch() == 0 || t.LastRun.GetDoing() == "" {
		return state.Word
	}
	return clip(t.LastRun.Doing, maxWord)
}

// pillTitle adds the state itself, the last tool and the cost so far.
func pillTitle(t *arbev1.Thread) string {
	text := stateOf(t).Word
	if about := childText(t); t.Running.GetRunEpoch() > 0 && about != "" {
		text += " · " + about
	}
	return text
}

func sandboxStatusWord(s *arbev1.Sandbox) string {
	switch s.Status {
	case arbev1.SandboxStatus_SANDBOX_STATUS_LIVE:
		return "Live"
	case arbev1.SandboxStatus_SANDBOX_STATUS_PENDING:
		return "Starting"
	case arbev1.SandboxStatus_SANDBOX_STATUS_DEAD:
		return "Gone; the next command makes a new one"
	}
	return arbev1.Word(s.Status)
}

// answered says who answers, at the end of a sentence that asks people to do something.
func answered(partner string) string {
	if partner == "" {
		return ""
	}
	return ", and " + partner + " answers"
}

// contextTitle says how much a model read at its last call.
func contextTitle(u *arbev1.ThreadUsage) string {
	text := clip(u.Model, maxWord) + " read " + grouped(int(u.ContextTokens))
	if u.ContextWindow > 0 {
		text += " of " + grouped(int(u.ContextWindow))
	}
	return text + " tokens at its last call"
}

// costWords formats what a thread has cost.
func costWords(u *arbev1.ThreadUsage) string {
	return costText(entry.TurnUsage{CostMicros: int64(u.Usd * 1e6), CostUnknown: u.UsdUnknown})
}

package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// sandboxesView is the page of a house's existing sandboxes.
type sandboxesView struct {
	Layout    layout
	Sandboxes []*arbev1.Sandbox
	More      string
	// Disk is the space that they use. It is nil on further pages.
	Disk *arbev1.HouseDisk
	// Spending is what they have cost this month. It is nil on further pages.
	Spending *arbev1.SandboxSpending
	// Accounts are the providers that the house can use with its own key. Set reports that such a key was just set.
	Accounts []*arbev1.SandboxAccount
	Set      bool
	// Asked reports that the providers were just asked. Gone counts the sandboxes that they no longer have, and Unknown those
	// that they did not answer about.
	Asked         bool
	Gone, Unknown int
}

// disk says how much space the sandboxes of the house use. It returns "" if that is unknown.
func (v sandboxesView) disk() string {
	if v.Disk.GetMostBytes() == 0 {
		return ""
	}
	text := "On the disks of their machines, they take up " + bytesText(v.Disk.GetSandboxBytes())
	if cached := v.Disk.GetCachedBytes(); cached > 0 {
		text += ", and cached environments " + bytesText(cached)
	}
	return text + ". The house may take up " + bytesText(v.Disk.GetMostBytes()) + " of each machine's disk."
}

// spending says what the sandboxes of the house cost this month. It returns "" if they cost nothing.
func (v sandboxesView) spending() string {
	r := v.Spending.GetRunning()
	if sandboxCost(r) == "" {
		return ""
	}
	text := "Since " + day(when(v.Spending.GetSince())) + ", sandboxes ran for " + ranFor(r) + ", deleted ones included."
	if r.GetCostMicros() > 0 {
		text += " By the prices of their providers, that cost " + costText(entry.TurnUsage{CostMicros: r.GetCostMicros()}) + "."
	}
	if unpriced := r.GetUnpricedMs(); unpriced > 0 {
		text += " For " + ranFor(&arbev1.SandboxRunning{TimeMs: unpriced}) + ", the price is unknown."
	}
	return text
}

// ranFor formats a running time.
func ranFor(r *arbev1.SandboxRunning) string {
	return entry.Approximately(time.Duration(r.GetTimeMs()) * time.Millisecond)
}

// sandboxCost formats the cost of a running time; "" for none.
func sandboxCost(r *arbev1.SandboxRunning) string {
	if r.GetCostMicros() == 0 && r.GetUnpricedMs() == 0 {
		return ""
	}
	return costText(entry.TurnUsage{CostMicros: r.GetCostMicros(), CostUnknown: r.GetUnpricedMs() > 0})
}

// hourlyPrice says what an hour of a sandbox costs; "" if that is nothing or unknown.
func hourlyPrice(u *arbev1.SandboxUse) string {
	if u.GetHourlyMicros() == 0 {
		return ""
	}
	return fmt.Sprintf("$%.4f per hour of running", float64(u.GetHourlyMicros())/1e6)
}

// accountWords says in whose account new sandboxes of a driver are.
func accountWords(a *arbev1.SandboxAccount) string {
	text := "New sandboxes are in the operator's account."
	switch {
	case a.GetSet():
		text = "New sandboxes are in the account of the house's key, with the limits of that account."
	case !a.GetOperator():
		text = "Not set up: there are none without a key of the house."
	}
	if n := int(a.GetSandboxes()); n > 0 {
		text += " " + numbered(n, "sandbox is", "sandboxes are") + " in the house's own account now."
	}
	return text
}

// answer describes the providers' answers.
func (v sandboxesView) answer() string {
	text := "All of them exist."
	if v.Gone > 0 {
		text = numbered(v.Gone, "sandbox is gone", "sandboxes are gone") + ". Their threads get new ones with their next command."
	}
	if v.Unknown > 0 {
		text += " " + numbered(v.Unknown, "could not be asked for and stays as it is.", "could not be asked for and stay as they are.")
	}
	return text
}

func numbered(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// sandboxView is the page of one sandbox.
type sandboxView struct {
	Layout   layout
	Sandbox  *arbev1.Sandbox
	Log      *arbev1.GetSandboxLogResponse
	Problems problems
}

// sandboxState returns a sandbox's status in words.
func sandboxState(s *arbev1.Sandbox) string {
	switch s.GetStatus() {
	case arbev1.SandboxStatus_SANDBOX_STATUS_PENDING:
		return "being built"
	case arbev1.SandboxStatus_SANDBOX_STATUS_LIVE:
		return "ready"
	}
	return "deleted"
}

// onIt says how many threads are on a sandbox besides the named ones.
func onIt(u *arbev1.SandboxUse) string {
	switch n := int(u.GetThreadCount()) - len(u.GetThreads()); {
	case u.GetThreadCount() == 0:
		return "no thread is on it"
	case n > 0 && len(u.GetThreads()) > 0:
		return "and " + numbered(n, "other thread", "other threads")
	case n > 0:
		return numbered(n, "direct message", "direct messages")
	}
	return ""
}

// threadTitle names a thread of a sandbox.
func threadTitle(t *arbev1.NamedThread) string {
	if t.GetName() == "" {
		return t.GetThreadId()
	}
	return clip(t.GetName(), maxWord)
}

// stepTook returns the duration of a build's step.
func stepTook(s *arbev1.SandboxStep) string {
	return (time.Duration(s.GetDurationMs()) * time.Millisecond).String()
}

// savedWords describes which part of a folder is saved.
func savedWords(p *arbev1.TreePart) string {
	switch {
	case p.GetMissing() != "":
		return "not saved: " + clip(p.GetMissing(), maxText)
	case p.GetArtifactId() == "":
		return "no changes"
	}
	return numbered(int(p.GetFiles()), "changed file", "changed files")
}

// folderName names a folder of a working tree.
func folderName(p *arbev1.TreePart) string {
	if p.GetFolder() == "" {
		return "working tree"
	}
	return clip(p.GetFolder(), maxWord)
}

// inOwnAccount says that a sandbox is in the house's own account.
func inOwnAccount(s *arbev1.Sandbox) string {
	if s.GetOwnAccount() {
		return ", in the house's own account"
	}
	return ""
}

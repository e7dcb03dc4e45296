package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// environmentsView is the page of a house's environments.
type environmentsView struct {
	Layout       layout
	Environments []*arbev1.Environment
	More         string
	// DefaultDriver is the driver of environments that name none.
	DefaultDriver string
}

// environmentView is the form of one environment.
type environmentView struct {
	Layout layout
	// Environment is nil in the form of a new one.
	Environment *arbev1.Environment
	// DefaultDriver is the driver of environments that name none.
	DefaultDriver string
	// Values are the form's values by field, Problems its errors.
	Values   map[string]string
	Problems problems
	// Saved reports that it has just been saved.
	Saved bool
	// Checks are the steps of a diagnosis that was just run, if any.
	Checks []*arbev1.EnvironmentCheck
}

// verdict says in one sentence how a diagnosis ended.
func (v environmentView) verdict() string {
	for _, c := range v.Checks {
		if c.Result == arbev1.CheckResult_CHECK_RESULT_FAILED {
			return "It cannot build a sandbox now: " + c.Name + " failed."
		}
	}
	return "It can build a sandbox now."
}

// took returns the duration of a diagnosis's step.
func took(c *arbev1.EnvironmentCheck) string {
	if c.Result == arbev1.CheckResult_CHECK_RESULT_SKIPPED {
		return ""
	}
	return (time.Duration(c.DurationMs) * time.Millisecond).String()
}

var environmentFields = []string{"name", "driver", "image", "repo", "ref", "repositories", "git", "setup", "start", "directory", "labels", "secrets", "mode", "sets", "hosts",
	"memory_mb", "disk_mb", "pids", "cpus", "command_timeout", "idle"}

// egressModes are the choices of hosts that sandboxes can reach, with their labels.
var egressModes = []struct{ Mode, Label string }{
	{"", "Package registries, GitHub and the hosts below"}, {"listed", "Only the sets and hosts below"}, {"open", "Every public host"}, {"none", "Nothing"},
}

// isDefault reports whether threads that name no environment use this one.
func (v environmentView) isDefault() bool {
	return v.Environment != nil && v.Environment.Id == v.Layout.House.DefaultEnvironmentId
}

// limitsSet reports whether a limit or another driver is set, or one of them has an error. The form then unfolds them to show it.
func (v environmentView) limitsSet() bool {
	if driver := v.Values["driver"]; driver != "" && driver != v.DefaultDriver || v.Problems["driver"] != "" {
		return true
	}
	for _, field := range environmentFields[slices.Index(environmentFields, "memory_mb"):] {
		if v.Values[field] != "" || v.Problems[field] != "" {
			return true
		}
	}
	return false
}

// nameHelp says when a name may be left out.
func (v environmentView) nameHelp() string {
	if v.Environment != nil {
		return ""
	}
	return "Leave empty for the repository's name."
}

// moreSet is like limitsSet, for the repositories after the first, the start script, the directory and the labels.
func (v environmentView) moreSet() bool {
	return slices.ContainsFunc([]string{"repositories", "start", "directory", "labels"}, func(field string) bool { return v.Values[field] != "" || v.Problems[field] != "" })
}

// action is the address that the form is sent to.
func (v environmentView) action() string {
	if v.Environment == nil {
		return settingsPath(v.Layout.House.Id, "environments")
	}
	return environmentPath(v.Environment.Id)
}

// recipeLine summarizes an environment in one line: what its sandboxes are built from and receive.
func recipeLine(e *arbev1.Environment, defaultDriver string) string {
	c := e.GetConfig()
	var parts []string
	if c.GetImage() != "" {
		parts = append(parts, c.GetImage())
	}
	if c.GetRepo() != "" {
		repo := c.GetRepo()
		if c.GetRef() != "" {
			repo += " at " + c.GetRef()
		}
		parts = append(parts, repo)
	}
	for _, r := range c.GetRepositories() {
		parts = append(parts, r.GetUrl())
	}
	if c.GetSetup() != "" {
		parts = append(parts, "setup script")
	}
	if len(parts) == 0 {
		parts = append(parts, "the "+cmp.Or(c.GetDriver(), defaultDriver)+" driver's base image")
	}
	for _, s := range c.GetSecrets() {
		parts = append(parts, "$"+s.GetName())
	}
	return clip(strings.Join(parts, " · "), maxWord)
}

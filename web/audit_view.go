package web

import (
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// auditView is a page of a house's audit log.
type auditView struct {
	Layout layout
	// Events are newest first.
	Events []*arbev1.AuditEvent
	// More is the token of the next page; empty on the last page.
	More string
}

// auditActor returns who did what an event says.
func auditActor(e *arbev1.AuditEvent) string {
	switch {
	case e.ActorName != "":
		return clip(e.ActorName, maxWord)
	case e.ActorAgentId != "":
		return unknownAgent
	}
	return "arbe"
}

// auditSubject returns what an event is about: "the member Cyd".
func auditSubject(e *arbev1.AuditEvent) string {
	kind := strings.ReplaceAll(e.SubjectKind, "_", " ")
	if kind == "api key" {
		kind = "API key"
	}
	if e.SubjectName == "" {
		return "the " + kind + " " + e.SubjectId
	}
	return "the " + kind + " " + clip(e.SubjectName, maxWord)
}

// auditVia says how the actor spoke, or "" for a browser.
func auditVia(e *arbev1.AuditEvent) string {
	switch {
	case e.KeyName != "" && e.Via == "cli":
		return "with the CLI, key " + clip(e.KeyName, maxWord)
	case e.KeyName != "":
		return "with the key " + clip(e.KeyName, maxWord)
	case e.Via == "cli":
		return "with the CLI"
	case e.Via == "token":
		return "with a token of a thread"
	case e.Via == "api":
		return "over the API"
	case e.Via == "retention":
		return "by the retention of the house"
	}
	return ""
}

// auditChange describes a changed field: "role: member → owner".
func auditChange(c *arbev1.AuditChange) string {
	field := strings.ReplaceAll(c.Field, "_", " ")
	quoted := func(text string) string {
		if text == "" {
			return "(empty)"
		}
		return clip(text, maxWord)
	}
	switch {
	case c.Before != nil && c.After != nil:
		return field + ": " + quoted(c.GetBefore()) + " → " + quoted(c.GetAfter())
	case c.After != nil:
		return field + ": " + quoted(c.GetAfter())
	case c.Before != nil:
		return field + ": no longer " + quoted(c.GetBefore())
	}
	return field
}

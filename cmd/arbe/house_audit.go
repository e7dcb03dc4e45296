package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseAudit(a *app) *cobra.Command {
	var house string
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who changed the administration of a house, and how",
		Long: "List changes in the administration of a house and who made them, newest first: members and roles, invites, bots, secrets,\n" +
			"environments, model servers, API keys, settings and limits, and deleted threads. Values of secrets and keys are\n" +
			"never in the log. Owners only.",
		Example: "  arbe house audit\n" +
			"  arbe house audit --limit 0 --json",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			if limit < 0 {
				return fault.New(fault.Invalid, "--limit is negative", "give how many events to list, or 0 for all")
			}
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			events, more, err := auditEvents(ctx, c, in, limit)
			if err != nil {
				return err
			}
			rows := make([]row, len(events))
			for i, e := range events {
				rows[i] = row{e.GetId(), viewAuditEvent(e), []string{
					a.when(e.GetAt().AsTime()), first(e.GetActorName(), e.GetActorAgentId(), "arbe"), strings.TrimSpace(e.GetVia() + " " + e.GetKeyName()),
					e.GetAction(), e.GetSubjectKind(), first(e.GetSubjectName(), e.GetSubjectId()), auditWords(e.GetChanges()),
				}}
			}
			if err := a.list([]string{"WHEN", "WHO", "VIA", "DID", "WHAT", "NAME", "CHANGES"}, rows); err != nil {
				return err
			}
			if more {
				a.say("there are more; --limit 0 lists all")
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().IntVar(&limit, "limit", 50, "the most to list; 0 means all")
	return cmd
}

// auditEvents returns the newest events of a house's audit log, at most limit unless that is 0, and whether there are more.
func auditEvents(ctx context.Context, c *arbe.Client, house string, limit int) (events []*arbev1.AuditEvent, more bool, err error) {
	for token := ""; ; {
		page, err := c.Houses.ListAuditEvents(ctx, &arbev1.ListAuditEventsRequest{HouseId: house, PageSize: 200, PageToken: token})
		if err != nil {
			return nil, false, err
		}
		events = append(events, page.GetEvents()...)
		token = page.GetNextPageToken()
		switch {
		case limit > 0 && len(events) >= limit:
			return events[:limit], len(events) > limit || token != "", nil
		case token == "":
			return events, false, nil
		}
	}
}

// auditWords describes changes in one line: "role: member → owner, instructions".
func auditWords(changes []*arbev1.AuditChange) string {
	words := make([]string, len(changes))
	for i, c := range changes {
		words[i] = c.GetField()
		switch {
		case c.Before != nil && c.After != nil:
			words[i] += ": " + first(c.GetBefore(), `""`) + " → " + first(c.GetAfter(), `""`)
		case c.After != nil:
			words[i] += ": " + c.GetAfter()
		case c.Before != nil:
			words[i] += ": no longer " + c.GetBefore()
		}
	}
	return strings.Join(words, ", ")
}

// auditView is an event of an audit log, as JSON.
type auditView struct {
	ID          string            `json:"id"`
	At          time.Time         `json:"at"`
	ActorID     string            `json:"actor_agent_id,omitempty"` // absent for arbe itself
	ActorKind   string            `json:"actor_kind,omitempty"`
	ActorName   string            `json:"actor_name,omitempty"`
	Via         string            `json:"via,omitempty"`
	KeyName     string            `json:"key_name,omitempty"`
	Action      string            `json:"action"`
	SubjectKind string            `json:"subject_kind"`
	SubjectID   string            `json:"subject_id"`
	SubjectName string            `json:"subject_name,omitempty"`
	Changes     []auditChangeView `json:"changes,omitempty"`
}

type auditChangeView struct {
	Field  string  `json:"field"`
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

func viewAuditEvent(e *arbev1.AuditEvent) auditView {
	v := auditView{
		ID: e.GetId(), At: e.GetAt().AsTime(), ActorID: e.GetActorAgentId(), ActorKind: e.GetActorKind(), ActorName: e.GetActorName(), Via: e.GetVia(),
		KeyName: e.GetKeyName(), Action: e.GetAction(), SubjectKind: e.GetSubjectKind(), SubjectID: e.GetSubjectId(), SubjectName: e.GetSubjectName(),
	}
	for _, c := range e.GetChanges() {
		v.Changes = append(v.Changes, auditChangeView{c.GetField(), c.Before, c.After})
	}
	return v
}

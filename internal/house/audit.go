package house

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

// auditBatch is how many old events one statement deletes.
const auditBatch = 10_000

// AuditEvent says that somebody changed something in the administration of a house. Triggers of the database write it, in the
// transaction of the change.
type AuditEvent struct {
	ID string
	At time.Time
	// Actor is the person or bot who made the change, with their name at that time. It is zero for arbe itself, and for
	// changes made directly in the database.
	Actor Agent
	// Via is the actor's client: "browser", "cli", "api", "token", or "" if it is not known. Key is the name of the API
	// key; empty for other credentials.
	Via, Key string
	// Action is "created", "changed" or "deleted".
	Action string
	// SubjectKind is the kind of the changed object, such as "member" or "secret". SubjectName is its name at that time.
	SubjectKind, SubjectID, SubjectName string
	// Changes are sorted by field.
	Changes []AuditChange
}

// AuditChange is a field that was set or changed. Before or After is nil if the field had no value then. Both are nil if
// the log does not record the field's values. Long values are cut off.
type AuditChange struct {
	Field         string
	Before, After *string
}

// AuditEvents returns up to limit events of the scope's house before a cursor, newest first; a zero cursor means the newest.
// The scope's agent must be an owner: the database shows events to nobody else.
func (h *Houses) AuditEvents(ctx context.Context, scope db.Scope, before db.Cursor, limit int) (list []AuditEvent, err error) {
	err = h.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := h.q.ListAuditEvents(ctx, tx, query.ListAuditEventsParams{HouseID: scope.House, BeforeTime: before.Time, BeforeID: before.ID, MaxRows: int32(limit)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			e := AuditEvent{ID: r.ID, At: r.At, Actor: Agent{ID: r.ActorID, Kind: r.ActorKind, Name: r.ActorName}, Via: r.Via, Key: r.KeyName,
				Action: r.Action, SubjectKind: r.SubjectKind, SubjectID: r.SubjectID, SubjectName: r.SubjectName}
			if e.Changes, err = changesFromRow(r.Changes); err != nil {
				return err
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

func changesFromRow(text json.RawMessage) (list []AuditChange, err error) {
	var fields map[string]*[2]*string
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		c := AuditChange{Field: field}
		if values := fields[field]; values != nil {
			c.Before, c.After = values[0], values[1]
		}
		list = append(list, c)
	}
	return list, nil
}

// DropAuditEvents deletes the events of all houses that are older than keep. With a keep of 0 it deletes none.
func (h *Houses) DropAuditEvents(ctx context.Context, keep time.Duration) error {
	for keep > 0 {
		n, err := h.q.DeleteAuditEvents(ctx, h.db.Pool(), time.Now().Add(-keep), auditBatch)
		if err != nil || n < auditBatch {
			return db.Explain(err)
		}
	}
	return nil
}

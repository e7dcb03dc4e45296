package bot

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Change describes a change of a bot. Nil fields are left unchanged.
type Change struct {
	// ETag is that of the version to change; empty for any. If the bot has another one, the error is a [fault.Aborted].
	ETag                              string
	Handle, Name, Instructions, Model *string
	Think                             *entry.Effort
	Tools, Ask                        *[]string
	Limits                            *Limits
}

// Edit changes a bot of the scope's house and returns it.
func (b *Bots) Edit(ctx context.Context, scope db.Scope, id string, c Change) (changed Bot, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		was, err := b.lockTx(ctx, tx, scope.House, id)
		if err != nil {
			return err
		}
		if err := etag.Check(c.ETag, was.ETag(), "this bot"); err != nil {
			return err
		}
		now, what, err := was.apply(c, b.Maxima)
		if err != nil {
			return err
		}
		if len(what) > 0 {
			if err := b.updateTx(ctx, tx, was, now); err != nil {
				return err
			}
			if err := b.recordChangeTx(ctx, tx, scope, now, what); err != nil {
				return err
			}
		}
		changed, err = b.GetTx(ctx, tx, scope.House, id)
		return err
	})
	if db.Violates(err, "bots_house_id_looks_key") { // taken by a bot created in the meantime
		return Bot{}, fault.Newf(fault.Exists, "choose another handle", "handle: another bot of the house has it, or one like it").WithReason(fault.NameTaken).Because(err)
	}
	return changed, err
}

func (b *Bots) lockTx(ctx context.Context, tx pgx.Tx, house, id string) (Bot, error) {
	if uuid.Validate(id) != nil {
		return Bot{}, noSuchBot()
	}
	if err := b.q.LockBotMember(ctx, tx, house, id); err != nil {
		return Bot{}, err
	}
	r, err := b.q.LockBot(ctx, tx, house, id)
	return b.found(ctx, tx, r.Bot, r.Name, r.Runtime, err)
}

// apply returns the bot after a change, and the names of the changed fields.
func (m Bot) apply(c Change, maxima Limits) (now Bot, what []string, err error) {
	now = m
	if c.Handle != nil {
		if now.Handle, err = cleanHandle(*c.Handle); err != nil {
			return now, nil, err
		}
	}
	set(&now.Name, c.Name)
	set(&now.Instructions, c.Instructions)
	set(&now.Model, c.Model)
	set(&now.Think, c.Think)
	set(&now.Tools, c.Tools)
	set(&now.Ask, c.Ask)
	set(&now.Limits, c.Limits)
	if err := now.clean(maxima); err != nil {
		return now, nil, err
	}
	for _, field := range []struct {
		word    string
		changed bool
	}{
		{"handle", m.Handle != now.Handle}, {"name", m.Name != now.Name}, {"instructions", m.Instructions != now.Instructions},
		{"model", m.Model != now.Model}, {"thinking effort", m.Think != now.Think}, {"tools", !slices.Equal(m.Tools, now.Tools)},
		{"tools that need approval", !slices.Equal(m.Ask, now.Ask)}, {"limits", m.Limits != now.Limits},
	} {
		if field.changed {
			what = append(what, field.word)
		}
	}
	return now, what, nil
}

func (b *Bots) updateTx(ctx context.Context, tx pgx.Tx, was, now Bot) error {
	if looks(was.Handle) != looks(now.Handle) {
		if _, err := b.q.BotLooks(ctx, tx, now.House, looks(now.Handle)); err == nil {
			return b.handleTaken(ctx, tx, now.House, now.Handle)
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	limits, err := json.Marshal(now.Limits)
	if err != nil {
		return err
	}
	// Write this row even if only the name changes, which is in another row: it updates updated_at and notifies the bot's
	// watchers.
	err = b.q.UpdateBot(ctx, tx, query.UpdateBotParams{HouseID: now.House, AgentID: now.ID, Handle: now.Handle, Instructions: now.Instructions,
		Model: now.Model, Think: string(now.Think), Tools: now.Tools, Ask: now.Ask, Limits: limits})
	if err != nil || was.Name == now.Name {
		return err
	}
	return b.q.RenameBot(ctx, tx, now.Name, now.ID)
}

func (b *Bots) recordChangeTx(ctx context.Context, tx pgx.Tx, scope db.Scope, of Bot, what []string) error {
	by, err := b.q.BotDoer(ctx, tx, scope.Agent)
	if err != nil {
		return err
	}
	return b.threads.RecordInHouseTx(ctx, tx, scope, entry.BotChanged{AgentID: of.ID, Handle: of.Handle, Name: of.Name, Changed: what, By: by})
}

package thread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Change describes a change of a thread. Nil fields are left unchanged.
type Change struct {
	// Name and Environment are removed by an empty string.
	Name, Environment *string
	Pinned            *bool
	// Tags replaces all tags.
	Tags *[]string
	// Answering is the bot that answers without being mentioned; empty for none.
	Answering *string
	// Model is the model of the bots that work in it, as provider/model; empty for that of each bot. The caller has checked
	// that it exists.
	Model *string
	// Think is how hard that model thinks; empty for the setting of each bot.
	Think *string
	// Status closes or reopens a chat.
	Status *Status
	// ETag is the version that the change was made for; empty changes any version.
	ETag string
}

// ETag names the version of the fields that [Threads.Update] changes.
func (t Thread) ETag() string {
	status := t.Status
	if t.Agent != "" {
		status = "" // its runs change it, and people cannot
	}
	return etag.Of(t.Name, t.Environment, !t.PinnedAt.IsZero(), t.Tags, t.Answering, t.Settled, status, t.Model, t.Think)
}

// Update changes a thread and returns it. It records a change of status in the log, in the same transaction.
func (t *Threads) Update(ctx context.Context, scope db.Scope, id string, c Change) (changed Thread, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := t.LockTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := etag.Check(c.ETag, th.ETag(), "this thread"); err != nil {
			return err
		}
		if err := th.apply(c); err != nil {
			return err
		}
		if err := t.checkAnswering(ctx, tx, scope.House, db.Zero(c.Answering)); err != nil {
			return err
		}
		if err := t.q.UpdateThread(ctx, tx, th.updated()); err != nil {
			return explainReference(err)
		}
		if c.Status != nil && *c.Status != th.Status {
			if err := t.changeStatus(ctx, tx, th, *c.Status, scope.Agent, entry.StatusChanged{}); err != nil {
				return err
			}
		}
		changed, err = t.GetTx(ctx, tx, id)
		return err
	})
	return changed, err
}

// updated returns the row of a changed thread.
func (t Thread) updated() query.UpdateThreadParams {
	return query.UpdateThreadParams{
		ID: t.ID, Name: db.Null(t.Name), PinnedAt: db.Null(t.PinnedAt), Tags: t.Tags, EnvironmentID: db.Null(t.Environment),
		AnsweringAgentID: db.Null(t.Answering), AnsweringDecided: t.Settled,
		Model: t.Model, Think: string(t.Think),
	}
}

// BeginWithTx records that a thread's first message is for a bot. The bot then answers in the thread without being
// mentioned, unless a person has already chosen another. It changes nothing in the house's own thread, a driven thread,
// a fork or a direct message.
func (t *Threads) BeginWithTx(ctx context.Context, tx pgx.Tx, id, bot string) error {
	return t.q.SettleAnswering(ctx, tx, bot, id)
}

// checkAnswering checks that an agent is a bot of the house that answers in threads. "" means none and is valid.
func (t *Threads) checkAnswering(ctx context.Context, tx pgx.Tx, house, agent string) error {
	if agent == "" {
		return nil
	}
	may, err := t.q.TakesTurns(ctx, tx, house, agent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.NotFound, "answering_agent_id: the house has no bot with this id", "use the id of one of its bots, or an empty string for none")
	case err == nil && !may:
		return fault.New(fault.Invalid, "answering_agent_id: this bot is a coding agent, which works on tasks in a thread of its own", "choose another bot, or give it a task with: /delegate, its @handle, and the task")
	}
	return err
}

// apply applies the plain fields of a change.
func (t *Thread) apply(c Change) (err error) {
	if c.Name != nil {
		if t.Name, err = entry.Name("name", *c.Name, MaxName); err != nil {
			return err
		}
	}
	if c.Tags != nil {
		if t.Tags, err = cleanTags(*c.Tags); err != nil {
			return err
		}
	}
	t.Environment = *cmp.Or(c.Environment, &t.Environment)
	t.Model = *cmp.Or(c.Model, &t.Model)
	if c.Think != nil {
		if t.Think, err = entry.ParseEffort(*c.Think); err != nil {
			return err
		}
	}
	if c.Answering != nil {
		if t.Agent != "" {
			return fault.New(fault.Precondition, "messages in this thread go to the coding agent that drives it", "mention a bot to ask it")
		}
		t.Answering, t.Settled = *c.Answering, true
	}
	if c.Pinned != nil {
		t.pin(*c.Pinned)
	}
	return nil
}

// pin pins a thread or unpins it. A thread that is pinned stays where it is.
func (t *Thread) pin(pinned bool) {
	switch {
	case !pinned:
		t.PinnedAt = time.Time{}
	case t.PinnedAt.IsZero():
		t.PinnedAt = time.Now()
	}
}

// cleanTags trims tags, and removes empty ones and duplicates. The result is never nil, because the column is not null.
func cleanTags(tags []string) ([]string, error) {
	clean := []string{}
	for _, tag := range tags {
		tag, err := entry.Name("tags", tag, MaxTag)
		if err != nil {
			return nil, err
		}
		if tag != "" && !slices.Contains(clean, tag) {
			clean = append(clean, tag)
		}
	}
	return clean, nil
}

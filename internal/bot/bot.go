// Package bot manages the bots of a house: their handles, instructions, models, tools and limits, and the activation policies
// (policy.go, policies.go) that decide what wakes them. handle.go has the rules for handles.
//
// A bot is an agent and a member of one house; its name and runtime are the agent's. Every change by a person is recorded in
// the house's primary thread, in the same transaction. [Bots.RosterTx] provides the input of selection: all bots of a house
// with their policies, and a version that changes whenever they do.
package bot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/etag"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// MaxInstructions limits a bot's instructions, in bytes.
	MaxInstructions = 64 << 10
	// MaxBots limits the bots of a house, because each of them is considered for each entry.
	MaxBots = 200
	// InServer is the runtime of a bot whose turns run in the server. It is the default.
	InServer = "arbe"
)

// Bot is a bot of a house.
type Bot struct {
	// ID is its agent's id.
	ID, House string
	// Handle is how people mention it, without the @. Name is how pages show it.
	Handle, Name string
	// Runtime is the program that does its work: [InServer], or a coding agent in a sandbox, such as "pi".
	Runtime string
	// Instructions are its instructions for each turn. A [Roster] leaves them out.
	Instructions string
	// Model is provider/model; empty for the default model of the house.
	Model string
	// Think is how hard its model thinks, unless a question says otherwise.
	Think entry.Effort
	// Tools lists the tools that it may use, in the order of [entry.Tools].
	Tools []string
	// Ask lists the tools that need a person's approval, besides those of its house, in the same order.
	Ask []string
	// Limits has only the limits that were set; see [Limits.OrDefaults].
	Limits Limits
	// Policies decide what wakes it, oldest first.
	Policies             []Policy
	CreatedAt, UpdatedAt time.Time
}

// Codes reports whether the bot is a coding agent: it works on tasks in sandboxes and takes no turns.
func (m Bot) Codes() bool { return m.Runtime != "" && m.Runtime != InServer }

// Roster is all bots of a house.
type Roster struct {
	// Version increases with each change of a bot, its name or its policies. Two rosters of a house with the same version are
	// equal.
	Version int64
	// Bots are ordered by handle. Their instructions are left out, because servers keep the rosters of many houses in memory.
	Bots []Bot
}

// ETag names the version of the bot, without its policies.
func (m Bot) ETag() string {
	return etag.Of(m.Handle, m.Name, m.Instructions, m.Model, m.Think, m.Tools, m.Ask, m.Limits)
}

// Bots manages bots. It is safe for concurrent use.
type Bots struct {
	// Maxima are the highest limits that a bot may have. They default to [DefaultMaxima]. Set them before the first use.
	Maxima Limits

	db      *db.DB
	threads *thread.Threads
	q       *query.Queries
}

// New returns a Bots.
func New(d *db.DB, threads *thread.Threads) *Bots {
	return &Bots{Maxima: DefaultMaxima, db: d, threads: threads, q: query.New()}
}

// clean validates and normalizes everything that people may change, except the handle.
func (m *Bot) clean(maxima Limits) (err error) {
	if m.Name, err = entry.RequiredName("name", m.Name, MaxName); err != nil {
		return err
	}
	switch {
	case len(m.Instructions) > MaxInstructions:
		return fault.Newf(fault.Invalid, "shorten them, or move long parts into a file that the bot reads",
			"instructions: at most %d KiB (%d bytes); these have %d bytes", MaxInstructions>>10, MaxInstructions, len(m.Instructions))
	case !utf8.ValidString(m.Instructions) || strings.ContainsRune(m.Instructions, 0):
		return fault.New(fault.Invalid, "instructions: they are not valid UTF-8 text", "send them as UTF-8 text")
	}
	if m.Model, err = cleanModel(m.Model); err != nil {
		return err
	}
	if m.Think, err = entry.ParseEffort(string(m.Think)); err != nil {
		return err
	}
	if m.Tools, err = CleanTools("tools", m.Tools); err != nil {
		return err
	}
	if m.Ask, err = CleanTools("ask", m.Ask); err != nil {
		return err
	}
	return m.Limits.validate(maxima)
}

// Get returns a bot of the scope's house with its policies. If there is none, the error is a [fault.NotFound].
func (b *Bots) Get(ctx context.Context, scope db.Scope, id string) (got Bot, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		got, err = b.GetTx(ctx, tx, scope.House, id)
		return err
	})
	return got, err
}

// GetTx is [Bots.Get] in the caller's transaction.
func (b *Bots) GetTx(ctx context.Context, tx pgx.Tx, house, id string) (Bot, error) {
	if uuid.Validate(id) != nil {
		return Bot{}, noSuchBot()
	}
	r, err := b.q.GetBot(ctx, tx, house, id)
	return b.found(ctx, tx, r.Bot, r.Name, r.Runtime, err)
}

// GetByHandle is [Bots.Get] by the handle, which may be written with its @ and in capitals.
func (b *Bots) GetByHandle(ctx context.Context, scope db.Scope, handle string) (got Bot, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		if uuid.Validate(handle) == nil { // a handle is shorter
			return noSuchBot()
		}
		got, err = b.FindTx(ctx, tx, scope.House, handle)
		return err
	})
	return got, err
}

// FindTx is [Bots.Get] by the id or the handle, in the caller's transaction.
func (b *Bots) FindTx(ctx context.Context, tx pgx.Tx, house, name string) (Bot, error) {
	if uuid.Validate(name) == nil {
		return b.GetTx(ctx, tx, house, name)
	}
	r, err := b.q.GetBotByHandle(ctx, tx, house, strings.ToLower(strings.TrimPrefix(name, "@")))
	return b.found(ctx, tx, r.Bot, r.Name, r.Runtime, err)
}

func (b *Bots) found(ctx context.Context, tx pgx.Tx, row query.Bot, name, runtime string, err error) (Bot, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return Bot{}, noSuchBot()
	} else if err != nil {
		return Bot{}, err
	}
	got, err := fromRow(row, name, runtime)
	if err != nil {
		return Bot{}, err
	}
	rows, err := b.q.ListPolicies(ctx, tx, row.HouseID, &row.AgentID)
	for _, p := range rows {
		got.Policies = append(got.Policies, policyFromRow(p))
	}
	return got, err
}

func noSuchBot() *fault.Error {
	return fault.New(fault.NotFound, "there is no such bot in this house", "list the bots of the house with: arbe bot list")
}

func fromRow(r query.Bot, name, runtime string) (Bot, error) {
	got := Bot{ID: r.AgentID, House: r.HouseID, Handle: r.Handle, Name: name, Runtime: runtime, Instructions: r.Instructions, Model: r.Model, Think: entry.Effort(r.Think),
		Tools: r.Tools, Ask: r.Ask, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	if err := json.Unmarshal(r.Limits, &got.Limits); err != nil {
		return Bot{}, fmt.Errorf("the limits of bot %s: %w", r.AgentID, err)
	}
	return got, nil
}

// List returns up to limit bots of the scope's house, ordered by handle, after a handle.
func (b *Bots) List(ctx context.Context, scope db.Scope, after string, limit int) (list []Bot, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		list, err = b.listTx(ctx, tx, scope.House, after, limit)
		return err
	})
	return list, err
}

func (b *Bots) listTx(ctx context.Context, tx pgx.Tx, house, after string, limit int) (list []Bot, err error) {
	rows, err := b.q.ListBots(ctx, tx, house, after, int32(limit))
	if err != nil {
		return nil, err
	}
	policies, err := b.q.ListPolicies(ctx, tx, house, nil)
	if err != nil {
		return nil, err
	}
	of := map[string][]Policy{}
	for _, p := range policies {
		of[p.AgentID] = append(of[p.AgentID], policyFromRow(p))
	}
	for _, r := range rows {
		got, err := fromRow(r.Bot, r.Name, r.Runtime)
		if err != nil {
			return nil, err
		}
		got.Policies = of[got.ID]
		list = append(list, got)
	}
	return list, nil
}

// RosterTx returns all bots of a house, in a transaction that sees the house. The roster is at least as new as its version.
func (b *Bots) RosterTx(ctx context.Context, tx pgx.Tx, house string) (r Roster, err error) {
	// Read the version first: a change between the two reads then makes the roster newer than its version, and it is read
	// once more. The other order would keep an old roster forever.
	if r.Version, err = b.q.RosterVersion(ctx, tx, house); errors.Is(err, pgx.ErrNoRows) {
		return r, fault.New(fault.NotFound, "there is no such house", "list your houses with: arbe house list")
	} else if err != nil {
		return r, err
	}
	r.Bots, err = b.listTx(ctx, tx, house, "", MaxBots+1)
	for i := range r.Bots {
		r.Bots[i].Instructions = ""
	}
	return r, err
}

// Package bot manages the bots of a house: their handles, instructions, models, tools and limits, and the activation policies
// (policy.go) that decide what wakes them. handle.go has the rules for handles.
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
	"slices"
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
	// MaxName limits a name, in characters.
	MaxName = 100
	// MaxBots limits the bots of a house, because each of them is considered for each entry.
	MaxBots = 200
	// InServer is the runtime of a bot whose turns run in the server. It is the default.
	InServer = "arbe"
)

// Coding lists the bots that each new house has besides [DefaultHandle], one for each coding agent. They have no policies:
// people and bots delegate tasks to them.
var Coding = []Draft{
	{Handle: "pi", Runtime: "pi", Tools: []string{}},
	{Handle: "codex", Runtime: "codex", Tools: []string{}},
	{Handle: "claude", Runtime: "claude-code", Tools: []string{}},
}

// The bot that each new house has.
const (
	DefaultHandle       = "arbe"
	DefaultInstructions = "You are arbe, the assistant of this house. Answer briefly and plainly. Run commands to find out what you do not know, " +
		"and say what you did. When you are not sure what is wanted, ask."
)

// Bot is a bot of a house.
type Bot struct {
	// ID is its agent's id.
	ID, House string
	// Handle is how people mention it, without the @. Name is how pages show it.
	Handle, Name string
	// Runtime does its work: [InServer], or a coding agent in a sandbox, such as "pi".
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

// Draft describes a bot to create.
type Draft struct {
	// Handle may be written with its @ and in capitals. Defaults to a free handle made from the name.
	Handle string
	// Name defaults to the handle. One of the two is required.
	Name string
	// Runtime defaults to [InServer].
	Runtime             string
	Instructions, Model string
	Think               entry.Effort
	// Tools may be empty. Nil means [entry.DefaultTools].
	Tools []string
	// Ask lists the tools that need a person's approval. It may include tools that the bot does not have.
	Ask    []string
	Limits Limits
}

// ETag names the version of the bot, without its policies.
func (m Bot) ETag() string {
	return etag.Of(m.Handle, m.Name, m.Instructions, m.Model, m.Think, m.Tools, m.Ask, m.Limits)
}

// Change describes a change of a bot. Nil fields are left unchanged.
type Change struct {
	// ETag is that of the version to change; empty for any. If the bot has another one, the error is a [fault.Aborted].
	ETag                              string
	Handle, Name, Instructions, Model *string
	Think                             *entry.Effort
	Tools, Ask                        *[]string
	Limits                            *Limits
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

// Create creates a bot in the scope's house. The bot answers when it is mentioned, and in direct messages to it. If another
// bot has the handle, or one that looks like it, the error is a [fault.Exists].
func (b *Bots) Create(ctx context.Context, scope db.Scope, d Draft) (made Bot, err error) {
	err = b.db.In(ctx, scope, func(tx pgx.Tx) error {
		if made, err = b.createTx(ctx, tx, scope, d); err != nil {
			return err
		}
		by, err := b.q.BotDoer(ctx, tx, scope.Agent)
		if err != nil {
			return err
		}
		return b.threads.RecordInHouseTx(ctx, tx, scope, entry.BotCreated{AgentID: made.ID, Handle: made.Handle, Name: made.Name, By: by})
	})
	return made, err
}

// CreateDefaultsTx creates the bots of a new house, @arbe and those of [Coding], in the transaction that creates the house.
// It records nothing, because this is part of the house's creation.
func (b *Bots) CreateDefaultsTx(ctx context.Context, tx pgx.Tx, scope db.Scope) error {
	_, err := b.createTx(ctx, tx, scope, Draft{Handle: DefaultHandle, Name: DefaultHandle, Instructions: DefaultInstructions})
	for _, d := range Coding {
		if err == nil {
			_, err = b.createTx(ctx, tx, scope, d)
		}
	}
	return err
}

func (b *Bots) createTx(ctx context.Context, tx pgx.Tx, scope db.Scope, d Draft) (Bot, error) {
	made := Bot{House: scope.House, ID: uuid.NewString(), Runtime: d.Runtime, Instructions: d.Instructions, Model: d.Model, Think: d.Think, Tools: d.Tools, Ask: d.Ask, Limits: d.Limits}
	if made.Runtime == "" {
		made.Runtime = InServer
	}
	if d.Tools == nil {
		made.Tools = entry.DefaultTools
	}
	var err error
	chosen := d.Handle != ""
	if chosen {
		if made.Handle, err = cleanHandle(d.Handle); err != nil {
			return Bot{}, err
		}
	}
	if made.Name = strings.TrimSpace(d.Name); made.Name == "" {
		made.Name = made.Handle
	}
	if err := made.clean(b.Maxima); err != nil {
		return Bot{}, err
	}
	if n, err := b.q.CountBots(ctx, tx, scope.House); err != nil {
		return Bot{}, err
	} else if n >= MaxBots {
		return Bot{}, fault.Newf(fault.Exhausted, "delete one that is not used", "the house already has %d bots", n).WithReason(fault.LimitReached)
	}
	if err := b.q.InsertBotAgent(ctx, tx, made.ID, made.Runtime, made.Name); err != nil {
		return Bot{}, err
	}
	if err := b.q.InsertBotMember(ctx, tx, scope.House, made.ID); err != nil {
		return Bot{}, err
	}
	if err := b.insert(ctx, tx, &made, chosen); err != nil {
		return Bot{}, err
	}
	if made.Codes() {
		return b.GetTx(ctx, tx, scope.House, made.ID)
	}
	for _, p := range newPolicies {
		p.Bot = made.ID
		if _, err := b.insertPolicy(ctx, tx, scope.House, p); err != nil {
			return Bot{}, err
		}
	}
	return b.GetTx(ctx, tx, scope.House, made.ID)
}

// insert inserts the row of a bot. Unless a person chose the handle, it tries handles made from the name until one is free.
func (b *Bots) insert(ctx context.Context, tx pgx.Tx, made *Bot, chosen bool) error {
	limits, err := json.Marshal(made.Limits)
	if err != nil {
		return err
	}
	for n := 1; n <= 2*MaxBots; n++ {
		if !chosen {
			made.Handle = proposedHandle(made.Name, n)
		}
		inserted, err := b.q.InsertBot(ctx, tx, query.InsertBotParams{HouseID: made.House, AgentID: made.ID, Handle: made.Handle,
			Instructions: made.Instructions, Model: made.Model, Think: string(made.Think), Tools: made.Tools, Ask: made.Ask, Limits: limits})
		if err != nil || inserted > 0 {
			return err
		}
		if chosen {
			return b.handleTaken(ctx, tx, made.House, made.Handle)
		}
	}
	return fault.New(fault.Exists, "handle: no handle made from the name is free", "choose a handle").WithReason(fault.NameTaken)
}

// handleTaken returns the error for a handle that a bot of the house has, or that looks like one.
func (b *Bots) handleTaken(ctx context.Context, tx pgx.Tx, house, handle string) error {
	found, err := b.q.BotLooks(ctx, tx, house, looks(handle))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if found.Handle == handle || err != nil {
		return fault.Newf(fault.Exists, "choose another handle, or change that bot", "handle: another bot of the house is @%s", handle).WithReason(fault.NameTaken)
	}
	return fault.Newf(fault.Exists, "choose a handle that nobody takes for it", "handle: @%s looks like @%s, which another bot of the house has", handle, found.Handle).WithReason(fault.NameTaken)
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

// cleanModel validates a model, written as provider/model, and trims white space. It may be empty. Whether the model exists
// is checked only when it is used, because a house may add providers later.
func cleanModel(model string) (string, error) {
	model = strings.TrimSpace(model)
	if model == "" {
		return "", nil
	}
	provider, id, found := strings.Cut(model, "/")
	switch next := "write provider/model, such as anthropic/claude-sonnet-4-5"; {
	case len(model) > 200:
		return "", fault.New(fault.Invalid, "model: at most 200 bytes", next)
	case strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fault.New(fault.Invalid, "model: it has a space or another character that model names cannot have", next)
	case !found || provider == "":
		return "", fault.Newf(fault.Invalid, next, "model: %q does not say which provider it is from", model)
	case id == "":
		return "", fault.Newf(fault.Invalid, next, "model: %q does not say which of the provider's models", model)
	}
	return model, nil
}

// CleanTools returns the names of tools in the order of [entry.Tools], each once. If there is no such tool, the error is a
// [fault.Invalid] that names the field.
func CleanTools(field string, tools []string) ([]string, error) {
	for _, tool := range tools {
		if !slices.Contains(entry.Tools, tool) {
			return nil, fault.Newf(fault.Invalid, "use some of "+strings.Join(entry.Tools, ", "), "%s: there is no tool %.60q", field, tool)
		}
	}
	clean := []string{} // not nil, which the database would store as null
	for _, tool := range entry.Tools {
		if slices.Contains(tools, tool) {
			clean = append(clean, tool)
		}
	}
	return clean, nil
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

// apply returns the bot after a change, and lists the differences in words.
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
	// Write this row even if only the name changes, which is in another row, so that updated_at and the bot's watchers
	// notice.
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

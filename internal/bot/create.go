package bot

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
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
// It writes no entries, because the bots are part of the house's creation.
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
	return fault.New(fault.Exists, "handle: every handle that derives from the name is taken", "choose a handle").WithReason(fault.NameTaken)
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
	return fault.Newf(fault.Exists, "choose a handle that nobody can mistake for it", "handle: @%s looks like @%s, which another bot of the house has", handle, found.Handle).WithReason(fault.NameTaken)
}

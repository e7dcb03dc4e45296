package server

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
)

// botTurns returns the configuration of bots' turns, and connects them with packages that they do not import.
func botTurns(d *db.DB, bots *bot.Bots, houses *house.Houses, models *model.Houses, client *model.Client, c Config) turn.Config {
	return turn.Config{
		Roots: c.Roots, Budget: c.Budget,
		Model: client,
		Bot:   botOf(d, bots, houses),
		Endpoint: func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error) {
			endpoint, used, err := models.Resolve(ctx, scope.House, ref)
			return endpoint, used.Model, err
		},
		Fallbacks: models.Fallbacks,
		Person: func(ctx context.Context, scope db.Scope, id string) (turn.Person, error) {
			a, err := houses.Agent(ctx, scope, id)
			return turn.Person{Name: a.Name, Bot: a.Kind == "bot"}, err
		},
		House: func(ctx context.Context, scope db.Scope) (turn.House, error) {
			h, err := houses.Get(ctx, scope)
			if err != nil {
				return turn.House{}, err
			}
			members, err := houses.Members(ctx, scope, db.Cursor{}, turn.MaxMembers+1)
			told := turn.House{Name: h.Name, More: len(members) > turn.MaxMembers}
			for _, m := range members[:min(len(members), turn.MaxMembers)] {
				told.Members = append(told.Members, turn.Member{Person: turn.Person{Name: m.Agent.Name, Bot: m.Agent.Kind == "bot"}, Handle: m.Agent.Handle})
			}
			return told, err
		},
	}
}

// botOf returns the function that reads a bot's settings.
func botOf(d *db.DB, bots *bot.Bots, houses *house.Houses) func(context.Context, db.Scope, string) (turn.Bot, error) {
	return func(ctx context.Context, scope db.Scope, id string) (turn.Bot, error) {
		var b bot.Bot
		var rules house.Rules
		err := d.In(ctx, scope, func(tx pgx.Tx) (err error) {
			if b, err = bots.GetTx(ctx, tx, scope.House, id); err == nil {
				rules, err = houses.RulesTx(ctx, tx, scope.House)
			}
			return err
		})
		if err != nil {
			return turn.Bot{}, err
		}
		return turnBot(b, rules, b.Limits.OrDefaults().Within(bots.Maxima)), nil
	}
}

// turnBot converts a bot for its turns.
func turnBot(b bot.Bot, rules house.Rules, l bot.Limits) turn.Bot {
	listens := map[string]string{}
	for _, p := range b.Policies {
		if settings, err := p.Settings(); err == nil && p.Trigger == bot.Ambient {
			listens[p.ID] = settings.Instructions
		}
	}
	return turn.Bot{
		Handle: b.Handle, Name: b.Name, Instructions: b.Instructions, Model: b.Model, Think: b.Think, Tools: b.Tools, Ask: slices.Concat(rules.Ask, b.Ask), Listens: listens,
		Limits: turn.Limits{
			Steps: l.TurnSteps, Tokens: l.TurnTokens, Micros: micros(l.TurnUSD), Time: time.Duration(l.TurnMinutes) * time.Minute,
			RunMicros: micros(l.RunUSD), ThreadMicros: micros(l.ThreadUSDDay), HouseMicros: micros(rules.Limits.USDDay),
			MemberMicros: int64(math.Round(rules.Limits.MemberUSDDay * 1e6)), // 0 is no limit
			Answer:       time.Duration(l.AnswerMinutes) * time.Minute,
		},
	}
}

// micros converts dollars to millionths: at least 1, because 0 would mean the default.
func micros(dollars float64) int64 { return max(int64(math.Round(dollars*1e6)), 1) }

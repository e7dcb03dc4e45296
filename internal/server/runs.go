package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/runner/program"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

// runs returns the configuration of coding agents' runs, and connects them with packages that they do not import.
func (p *starting) runs() run.Config {
	c := run.Config{
		Bots: p.bots, Limits: p.cfg.Runs, Agents: map[string]run.Agent{}, Program: runnerFor, Model: p.modelOfRun, Rules: p.rulesOfRun, Spent: spentOnRuns, Witness: p.witness, TreeSpent: spentOnTree,
		Token: func(ctx context.Context, house, thread, bot string, epoch int64) (string, error) {
			t, err := p.auth.CreateRunToken(ctx, house, thread, bot, epoch)
			return t.Token, err
		},
	}
	for _, h := range all.Harnesses {
		info := h.Info()
		agent := run.Agent{Title: info.Title, Version: info.Version, Install: h.Install().Script, Steers: info.Steer, Asks: info.Asks, Witness: info.Witness}
		for _, d := range info.Dialects {
			agent.Dialects = append(agent.Dialects, string(d))
		}
		c.Agents[info.Name] = agent
	}
	return c
}

// agents returns the coding agents that can do bots' work.
func agents() (infos []harness.Info) {
	for _, h := range all.Harnesses {
		infos = append(infos, h.Info())
	}
	return infos
}

// spentOnRuns returns the usage of a thread's runs, as the gateway counted it.
func spentOnRuns(ctx context.Context, tx pgx.Tx, house, thread string, epochs ...int64) (map[int64]entry.TurnUsage, error) {
	known, err := gateway.UsageTx(ctx, tx, house, thread, epochs...)
	used := make(map[int64]entry.TurnUsage, len(known))
	for epoch, u := range known {
		used[epoch] = entry.TurnUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CostMicros: u.CostMicros, CostUnknown: u.CostUnknown}
	}
	return used, err
}

// spentOnTree returns the cost of a thread and everything below it.
func spentOnTree(ctx context.Context, tx pgx.Tx, house, thread string) (run.Cost, error) {
	micros, unknown, err := turn.TreeCostTx(ctx, tx, house, thread)
	return run.Cost{Micros: micros, Unknown: unknown}, err
}

// recordedWithin limits the wait for the complete record of a call after its agent has ended. When the database is back
// after a failure, the gateway records the call within about a second. A longer wait would leave the runner's request,
// which has 30 seconds, no time to store the changes of the run.
const recordedWithin = 10 * time.Second

// witness returns the reason why a run has failed although its agent reports success. It judges by the end of the run's
// last model call.
func (p *starting) witness(ctx context.Context, house, thread string, epoch int64) (string, error) {
	for late := time.Now().Add(recordedWithin); ; wait.For(ctx, 50*time.Millisecond) {
		var last *gateway.Call
		err := p.database.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) (err error) {
			last, err = gateway.LastTx(ctx, tx, house, thread, epoch, "")
			return err
		})
		if err != nil {
			return "", err
		}
		if last == nil {
			return harness.Seen{}.Failed(), nil
		}
		if last.Outcome == "" && time.Now().Before(late) && ctx.Err() == nil {
			continue
		}
		return seen(*last).Failed(), ctx.Err()
	}
}

// seen converts a call for a harness. The agent may leave as soon as it has read why the answer ended.
func seen(c gateway.Call) harness.Seen {
	answered := c.Outcome == gateway.OK || c.Outcome == gateway.Left && c.Stop != ""
	return harness.Seen{Called: true, Answered: answered, Status: c.Status, Stop: c.Stop}
}

// runnerOf is a variable, so that a test can upgrade a server to one with another runner.
var runnerOf = program.Runner

// runnerFor returns our runner for a kind of machine, as uname -m names it.
func runnerFor(machine string) ([]byte, error) {
	if text := runnerOf(map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]); text != nil {
		return text, nil
	}
	return nil, fault.Newf(fault.Precondition, "use a sandbox on x86_64 or aarch64", "no coding agent runs on %.40q", machine)
}

// rulesOfRun returns the tools for which a bot needs approval, by its house's rules and its own.
func (p *starting) rulesOfRun(ctx context.Context, scope db.Scope, b bot.Bot) (run.Rules, error) {
	var rules house.Rules
	err := p.database.In(ctx, scope, func(tx pgx.Tx) (err error) {
		rules, err = p.houses.RulesTx(ctx, tx, scope.House)
		return err
	})
	l := b.Limits.OrDefaults().Within(p.bots.Maxima)
	return run.Rules{Ask: slices.Concat(rules.Ask, b.Ask), Patience: time.Duration(l.AnswerMinutes) * time.Minute}, err
}

// modelOfRun returns the model of a bot, or of its house, as its agent reaches it through the gateway or with its own key.
func (p *starting) modelOfRun(ctx context.Context, scope db.Scope, b bot.Bot, dialects []string) (run.Model, error) {
	endpoint, ref, err := p.models.Resolve(ctx, scope.House, b.Model)
	if err != nil {
		return run.Model{}, err
	}
	spoken := spokenBy(endpoint)
	i := slices.IndexFunc(dialects, func(d string) bool { return slices.Contains(spoken, harness.Dialect(d)) })
	if i < 0 {
		return run.Model{}, fault.Newf(fault.Precondition, "choose another model for @"+b.Handle+", or for the house",
			"%s cannot ask the model %s, which is not reached by %s", b.Runtime, ref, strings.Join(dialects, " or "))
	}
	return run.Model{Provider: ref.Endpoint, ID: ref.Model, Dialect: dialects[i], Path: "/api/model/" + ref.Endpoint, KeyEnv: model.KeySecret(endpoint.Provider), Root: endpoint.Root(), Thinks: model.Thinks(endpoint.Provider, ref.Model)}, nil
}

// spokenBy returns the dialects in which the gateway can ask an endpoint. Providers with one of OpenAI's dialects have both.
func spokenBy(e model.Endpoint) []harness.Dialect {
	switch {
	case e.Dialect == model.Messages:
		return []harness.Dialect{harness.Messages}
	case e.Dialect == model.Gemini:
		return []harness.Dialect{harness.Gemini}
	case e.Dialect != model.Chat && e.Dialect != model.Responses:
		return nil
	case e.Provider != model.Compatible:
		return []harness.Dialect{harness.Chat, harness.Responses}
	case e.Dialect == model.Responses:
		return []harness.Dialect{harness.Responses}
	}
	return []harness.Dialect{harness.Chat}
}

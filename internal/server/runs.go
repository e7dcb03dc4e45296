package server

import (
	"context"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/runner/program"
)

// runs returns what runs of coding agents need from the packages that they do not know.
func (p *starting) runs() run.Config {
	c := run.Config{
		Bots: p.bots, Limits: p.cfg.Runs, Agents: map[string]run.Agent{}, Program: runnerFor, Model: p.modelOfRun,
		Token: func(ctx context.Context, house, thread, bot string, epoch int64) (string, error) {
			t, err := p.auth.CreateRunToken(ctx, house, thread, bot, epoch)
			return t.Token, err
		},
	}
	for _, h := range all.Harnesses {
		info := h.Info()
		agent := run.Agent{Title: info.Title, Version: info.Version, Install: h.Install().Script}
		for _, d := range info.Dialects {
			agent.Dialects = append(agent.Dialects, string(d))
		}
		c.Agents[info.Name] = agent
	}
	return c
}

// runnerFor returns our runner for a machine as uname -m names it.
func runnerFor(machine string) ([]byte, error) {
	if text := program.Runner(map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]); text != nil {
		return text, nil
	}
	return nil, fault.Newf(fault.Precondition, "use a sandbox on x86_64 or aarch64", "no coding agent runs on %.40q", machine)
}

// modelOfRun returns the model of a bot, or of its house, as its agent reaches it through the gateway.
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
	return run.Model{Provider: ref.Endpoint, ID: ref.Model, Dialect: dialects[i], Path: "/api/model/" + ref.Endpoint}, nil
}

// spokenBy returns the dialects in which the gateway asks an endpoint. The providers that have one of OpenAI's have both.
func spokenBy(e model.Endpoint) []harness.Dialect {
	switch {
	case e.Dialect == model.Messages:
		return []harness.Dialect{harness.Messages}
	case e.Dialect != model.Chat && e.Dialect != model.Responses:
		return nil
	case e.Provider != model.Compatible:
		return []harness.Dialect{harness.Chat, harness.Responses}
	case e.Dialect == model.Responses:
		return []harness.Dialect{harness.Responses}
	}
	return []harness.Dialect{harness.Chat}
}

package run

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file handles questions that coding agents ask people. A runner posts a question as an entry. In the same
// transaction it becomes a request for approval, like those of turns. The answer is an entry too (answer.go), which the
// runner reads from the log. A run that ends withdraws its questions.

// asker identifies a run as the one that asks.
func asker(th thread.Thread) approval.By {
	return approval.By{House: th.House, Thread: th.ID, Epoch: th.Run.Epoch}
}

// working are the tools of arbe that coding agents replace by their own.
var working = []string{entry.RunCommandTool, entry.ReadFileTool, entry.WriteFileTool, entry.EditFileTool, entry.SearchFilesTool, entry.FetchTool}

// rulesOf returns a bot's rules, reduced to the tools of coding agents.
func (r *Runs) rulesOf(ctx context.Context, scope db.Scope, b bot.Bot) (rules Rules, err error) {
	if r.config.Rules != nil {
		if rules, err = r.config.Rules(ctx, scope, b); err != nil {
			return rules, err
		}
	}
	var ask []string
	for _, name := range working {
		if slices.Contains(rules.Ask, name) {
			ask = append(ask, name)
		}
	}
	rules.Ask, rules.Patience = ask, cmp.Or(rules.Patience, 24*time.Hour)
	return rules, nil
}

// cannotAsk returns an error if the rules require approval and the agent cannot ask.
func cannotAsk(b bot.Bot, agent Agent, rules Rules) error {
	if len(rules.Ask) == 0 || agent.Asks {
		return nil
	}
	return fault.Newf(fault.Precondition, "delegate to a coding agent that can ask, such as @claude, or have an owner change what needs approval: arbe house ask, arbe bot edit",
		"@%s may use %s only with a person's approval, and %s cannot ask people", b.Handle, strings.Join(rules.Ask, ", "), agent.Title)
}

// ask takes a post that asks or withdraws questions.
func (r *Runs) ask(ctx context.Context, by Poster, drafts []entry.Draft) error {
	b, err := r.config.Bots.Get(ctx, db.Scope{House: by.House}, by.Agent)
	if err != nil {
		return err
	}
	rules, err := r.rulesOf(ctx, db.Scope{House: by.House}, b)
	if err != nil {
		return err
	}
	expires := time.Now().Add(rules.Patience)
	return r.inThread(ctx, by.House, by.Thread, func(tx pgx.Tx, th thread.Thread) error {
		if th.Run.Epoch != by.Epoch || th.Status != thread.Running {
			return fault.New(fault.Forbidden, "this run is over", "stop the agent").WithReason(fault.RunEnded)
		}
		var kept []entry.Draft
		for _, d := range drafts {
			more, err := r.askTx(ctx, tx, th, d, expires)
			if err != nil {
				return err
			}
			kept = append(kept, more...)
		}
		if len(kept) == 0 {
			return nil
		}
		_, err := r.config.Log.AppendTx(ctx, tx, th.Stream(), kept...)
		return err
	})
}

// askTx returns the entries for a runner's draft. A question that cannot be asked is withdrawn at once, with the
// reason for the agent.
func (r *Runs) askTx(ctx context.Context, tx pgx.Tx, th thread.Thread, d entry.Draft, expires time.Time) ([]entry.Draft, error) {
	at := entry.Entry{Type: d.Type, Payload: d.Payload}
	if p, ok := entry.As[entry.PermissionAnswered](at); ok && p.Epoch == th.Run.Epoch {
		call := strings.TrimSuffix(d.ID, entry.AnsweredID(""))
		return approval.EndTx(ctx, tx, approval.End{By: asker(th), Call: call, Outcome: entry.Withdrawn})
	}
	p, ok := entry.As[entry.PermissionAsked](at)
	if !ok {
		return []entry.Draft{d}, nil
	}
	asked, refused, err := approval.AskTx(ctx, tx, approval.Request{
		By: asker(th), Bot: th.Agent, Call: p.CallID, Tool: p.Tool, Arguments: p.Arguments, Question: p.Question, Expires: expires,
	})
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		f := fault.From(refused)
		return []entry.Draft{entry.NewDraft(entry.AnsweredID(p.CallID), "", entry.PermissionAnswered{
			ApprovalID: p.CallID, Epoch: p.Epoch, AgentID: th.Agent, Outcome: entry.Withdrawn, Reason: f.Message + "; " + f.Next,
		})}, nil
	case asked == nil:
		return nil, nil
	}
	return []entry.Draft{*asked}, nil
}

// expire ends the questions of a thread's run that nobody has answered in time.
func (r *Runs) expire(ctx context.Context, house, threadID string) error {
	due := false
	err := r.config.DB.In(ctx, db.Scope{House: house}, func(tx pgx.Tx) error {
		th, err := r.config.Threads.GetTx(ctx, tx, threadID)
		if err == nil {
			due, err = approval.DueTx(ctx, tx, asker(th))
		}
		return err
	})
	if err != nil || !due {
		return err
	}
	return r.inThread(ctx, house, threadID, func(tx pgx.Tx, th thread.Thread) error {
		ended, err := approval.EndTx(ctx, tx, approval.End{By: asker(th), Outcome: entry.Expired, Due: true})
		if err != nil || len(ended) == 0 {
			return err
		}
		_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), ended...)
		return err
	})
}

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

// This file is for what coding agents ask people. A runner posts the question as an entry; it becomes a request for approval, as those
// of turns are, in the same transaction. Its answer is an entry, too, which the runner reads as it reads what is said. A run that ends
// withdraws what it asked.

// asker is a run as one that asks people.
func asker(th thread.Thread) approval.By {
	return approval.By{House: th.House, Thread: th.ID, Epoch: th.Run.Epoch}
}

// working are the tools of arbe that coding agents have in their own way.
var working = []string{entry.RunCommandTool, entry.ReadFileTool, entry.WriteFileTool, entry.EditFileTool, entry.SearchFilesTool, entry.FetchTool}

// rulesOf returns what a bot does only with a person's approval, of what coding agents do.
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

// cannotAsk refuses an agent that cannot ask, if the rules require approval for what it does.
func cannotAsk(b bot.Bot, agent Agent, rules Rules) error {
	if len(rules.Ask) == 0 || agent.Asks {
		return nil
	}
	return fault.Newf(fault.Precondition, "delegate to a coding agent that can ask, such as @claude, or have an owner change what needs approval: arbe house ask, arbe bot edit",
		"@%s may use %s only with a person's approval, and %s cannot ask people", b.Handle, strings.Join(rules.Ask, ", "), agent.Title)
}

// ask takes a post that has questions, or withdraws some.
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

// askTx returns the entries that a draft of a runner becomes. A question that nobody is asked is withdrawn at once, with the reason for
// the agent.
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

// Answer records what the scope's agent says to a coding agent that asks. Errors: those of [approval.AnswerTx].
func (r *Runs) Answer(ctx context.Context, scope db.Scope, a approval.Answer) (answered approval.Approval, err error) {
	if th, err := r.config.Threads.Get(ctx, scope, a.Thread); err == nil {
		r.Fresh(ctx, scope, th) // an agent that has died is not answered
	}
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.config.Threads.LockTx(ctx, tx, a.Thread)
		if err != nil {
			return err
		}
		var d *entry.Draft
		answered, d, err = approval.AnswerTx(ctx, tx, scope.Agent, a, func(by approval.By) (bool, error) {
			return th.Status == thread.Running && th.Run.Epoch == by.Epoch, nil
		})
		if err != nil || d == nil {
			return err
		}
		_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), *d)
		return err
	})
	return answered, err
}

// expire ends what the run of a thread has asked and nobody has answered in time.
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

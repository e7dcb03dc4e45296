package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/turn"
)

// delegateTools returns the tools that give tasks to coding agents.
func (d *Dispatcher) delegateTools() []turn.Tool {
	return []turn.Tool{
		acts(runsAsBot, tool(entry.DelegateTaskTool, `Gives a task to a coding agent, which works on it in a thread and a sandbox of its own for as long as it takes. It returns the
thread's id at once; delegate several tasks if they do not depend on each other. When the last of them has ended, or you have waited long enough, you are asked again, with their results in this thread. Write
the task so that somebody who has not read this thread can do it.`,
			`{"type":"object","properties":{
			"task":{"type":"string","minLength":1,"maxLength":100000},
			"agent":{"type":"string","description":"the handle of a coding agent of this house, such as @pi, @codex or @claude; leave it out for @pi"},
			"environment":{"type":"string","description":"the id of an environment for the sandbox; leave it out for that of this thread"},
			"sandbox":{"type":"string","description":"parent, to work on the files of this thread's sandbox, or the id of a sandbox; leave it out for a new one"},
			"wait_minutes":{"type":"integer","minimum":1,"maximum":525600,"description":"after so many minutes you are asked again even if the work goes on; leave it out if nothing depends on it"}},
			"required":["task"],"additionalProperties":false}`, d.delegateForBot)),
	}
}

type delegateArguments struct {
	Task        string `json:"task"`
	Agent       string `json:"agent"`
	Environment string `json:"environment"`
	Sandbox     string `json:"sandbox"`
	WaitMinutes int64  `json:"wait_minutes"`
}

// delegateForBot delegates a task on behalf of a call's bot. Repeating the call does nothing.
func (d *Dispatcher) delegateForBot(ctx context.Context, c turn.Call, a delegateArguments) (string, error) {
	root, err := d.rootOf(ctx, c)
	if err != nil {
		return "", err
	}
	child, err := d.Runs.Spawn(ctx, c.Scope, run.Task{
		ID: c.ID, Parent: c.Thread, Text: a.Task, Agent: a.Agent, Environment: a.Environment, Sandbox: a.Sandbox, Root: root, Wait: time.Duration(a.WaitMinutes) * time.Minute,
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("delegated; the task is in thread %s. End your turn, unless there is something else to do: you get another turn when the task has ended, or takes too long.", child.ID), nil
}

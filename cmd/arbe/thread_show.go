package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show [THREAD]",
		Short:             "Show a thread",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			found, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: id, Usage: true})
			if err != nil {
				return err
			}
			t, used := found.GetThread(), found.GetUsed()
			view := shownThread{export.ViewThread(t), threadUsageView{used.GetUsd(), used.GetUsdUnknown(), used.GetCalls(), used.GetModel(), used.GetContextTokens(), used.GetContextWindow()}}
			return a.show(t.GetId(), view, func() string { return a.describe(t) + usedWords(used) })
		}),
	}
}

// describe lists the data of a thread, one per line.
func (a *app) describe(t *arbev1.Thread) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, entry.PrintableLine(value))
		}
	}
	line("thread", t.GetId())
	line("name", title(t))
	line("status", arbev1.Word(t.GetStatus()))
	if t.GetRunning() != nil {
		line("now", doing(t))
		line("working since", a.when(t.GetRunning().GetSince().AsTime()))
	}
	line("in", t.GetParent().GetKind()+" "+t.GetParent().GetId())
	line("forked from", origin(t))
	line("house", t.GetHouseId())
	line("driven by", t.GetAgentId())
	line("answering", t.GetAnsweringAgentId())
	line("environment", t.GetEnvironmentId())
	line("sandbox", t.GetSandboxId())
	line("entries", fmt.Sprint(t.GetTail()))
	line("last active", a.when(t.GetLastActivityAt().AsTime()))
	line("created", a.when(t.GetCreatedAt().AsTime()))
	w.Flush()
	return b.String()
}

// origin says where a thread was forked from. It returns "" if the thread is not a fork.
func origin(t *arbev1.Thread) string {
	from := t.GetForkedFrom()
	if from == nil {
		return ""
	}
	return fmt.Sprintf("%s at %d", first(from.GetThreadId(), "a deleted thread"), from.GetSeq())
}

// shownThread is a thread with what its models have used, as JSON.
type shownThread struct {
	export.Thread
	Usage threadUsageView `json:"usage"`
}

// threadUsageView is the usage of a thread. The cost includes the threads below it.
type threadUsageView struct {
	USD        float64 `json:"usd"`
	USDUnknown bool    `json:"usd_unknown,omitempty"`
	Calls      int64   `json:"calls"`
	// Model read ContextTokens at its last call, of at most ContextWindow, which is absent if it is not known.
	Model         string `json:"model,omitempty"`
	ContextTokens int64  `json:"context_tokens,omitempty"`
	ContextWindow int64  `json:"context_window,omitempty"`
}

// usedWords describes the usage of a thread's models, one line each.
func usedWords(u *arbev1.ThreadUsage) string {
	if u.GetCalls() == 0 {
		return ""
	}
	text := fmt.Sprintf("cost         $%.2f", u.GetUsd())
	if u.GetUsdUnknown() {
		text += ", and calls of models whose price is unknown"
	}
	switch {
	case u.GetContextWindow() > 0:
		text += fmt.Sprintf("\ncontext      %d%% full: %s read %d of %d tokens", 100*u.GetContextTokens()/u.GetContextWindow(), entry.PrintableLine(u.GetModel()), u.GetContextTokens(), u.GetContextWindow())
	case u.GetModel() != "":
		text += fmt.Sprintf("\ncontext      %s read %d tokens", entry.PrintableLine(u.GetModel()), u.GetContextTokens())
	}
	return text + "\n"
}

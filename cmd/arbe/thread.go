package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// theThread returns the thread that a verb works on: the named thread, or $ARBE_THREAD.
func (a *app) theThread(named string) (string, error) {
	if ref := first(named, a.getenv("ARBE_THREAD")); ref != "" {
		return ref, nil
	}
	return "", fault.New(fault.Invalid, "no thread is named", "give its id or name, or set ARBE_THREAD; arbe thread list shows them")
}

// threadID returns the id of [app.theThread]. People may name the thread by id or by name.
func (a *app) threadID(ctx context.Context, c *arbe.Client, named string) (string, error) {
	ref, err := a.theThread(named)
	if err != nil {
		return "", err
	}
	return a.find(ctx, c, threadKind, "", ref)
}

// getThread returns the thread that a person named.
func (a *app) getThread(ctx context.Context, c *arbe.Client, named string) (*arbev1.Thread, error) {
	id, err := a.threadID(ctx, c, named)
	if err != nil {
		return nil, err
	}
	found, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: id})
	return found.GetThread(), err
}

// updateThread changes a thread and shows it, with a description of the change.
func (a *app) updateThread(ctx context.Context, c *arbe.Client, req *arbev1.UpdateThreadRequest, done string) error {
	updated, err := c.Threads.UpdateThread(ctx, req)
	if err != nil {
		return err
	}
	t := updated.GetThread()
	return a.show(t.GetId(), export.ViewThread(t), func() string { return fmt.Sprintf("%s %s: %s", done, t.GetId(), entry.PrintableLine(title(t))) })
}

// changesThread returns the function of a verb that makes one change to a thread.
func (a *app) changesThread(done string, change func(*arbev1.UpdateThreadRequest)) func(*cobra.Command, []string) error {
	return a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
		var req arbev1.UpdateThreadRequest
		if req.Id, err = a.threadID(ctx, c, firstOf(args)); err != nil {
			return err
		}
		change(&req)
		return a.updateThread(ctx, c, &req, done)
	})
}

// firstOf returns the first argument, or "" without arguments.
func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// title returns the title by which people know a thread.
func title(t *arbev1.Thread) string {
	name := first(t.GetName(), "(untitled)")
	if t.GetPinnedAt() != nil {
		name = "* " + name
	}
	if len(t.GetTags()) > 0 {
		name += " [" + strings.Join(t.GetTags(), ", ") + "]"
	}
	return name
}

package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The queue of a thread that a coding agent drives: the messages that the agent has not received yet.

func threadQueue(a *app) *cobra.Command {
	return group(a, "queue", "List, edit, move, send and cancel the messages that wait for a coding agent", queueList, queueEdit, queueMove, queueSend, queueCancel)
}

// queuedView is a waiting message, as JSON.
type queuedView struct {
	ID       string    `json:"id"`
	Seq      int64     `json:"seq"`
	AuthorID string    `json:"author_id"`
	SaidAt   time.Time `json:"said_at"`
	Text     string    `json:"text"`
	Clipped  bool      `json:"clipped,omitempty"`
	Files    int       `json:"files,omitempty"`
	EditedBy string    `json:"edited_by,omitempty"`
	Queue    bool      `json:"queue"`
	Version  int64     `json:"version"`
}

func viewQueued(m *arbev1.QueuedMessage) queuedView {
	return queuedView{m.GetEntryId(), m.GetSeq(), m.GetAuthorAgentId(), m.GetSaidAt().AsTime(), m.GetText(), m.GetClipped(), len(m.GetAttachments()), m.GetEditedByAgentId(), m.GetQueue(), m.GetVersion()}
}

// showQueue prints the waiting messages of a thread.
func (a *app) showQueue(ctx context.Context, c *arbe.Client, t *arbev1.Thread, messages []*arbev1.QueuedMessage, total int32) error {
	agents, err := allAgents(ctx, c, t.GetHouseId())
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, agent := range agents {
		names[agent.GetId()] = agent.GetName()
	}
	var rows []row
	for _, m := range messages {
		by := cmp.Or(names[m.GetAuthorAgentId()], m.GetAuthorAgentId())
		if editor := m.GetEditedByAgentId(); editor != "" {
			by += ", edited by " + cmp.Or(names[editor], editor)
		}
		rows = append(rows, row{m.GetEntryId(), viewQueued(m), []string{strconv.FormatInt(m.GetSeq(), 10), by, a.when(m.GetSaidAt().AsTime()), m.GetText()}})
	}
	if more := int(total) - len(messages); more > 0 {
		a.say("%d more are waiting after these", more)
	}
	return a.list([]string{"SEQ", "BY", "SAID", "MESSAGE"}, rows)
}

func queueList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [THREAD]",
		Short: "List the messages that wait for the coding agent of a thread",
		Long: "List the messages that the coding agent of a thread does not have yet, in the order in which it will get them.\n" +
			"An agent that accepts messages while it works gets them at once; any other when it has finished its current work.\n" +
			"THREAD defaults to $ARBE_THREAD.",
		Args: takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			t, err := a.getThread(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			q, err := c.Runs.ListQueue(ctx, &arbev1.ListQueueRequest{ThreadId: t.GetId()})
			if err != nil {
				return err
			}
			return a.showQueue(ctx, c, t, q.GetMessages(), q.GetTotal())
		}),
	}
}

// changeQueue changes the message that a person named, at its current version, and prints the new queue. before is another
// message, or empty.
func (a *app) changeQueue(ctx context.Context, c *arbe.Client, thread, message, before string, change func(req *arbev1.ChangeQueueRequest, before string)) error {
	t, err := a.getThread(ctx, c, thread)
	if err != nil {
		return err
	}
	q, err := c.Runs.ListQueue(ctx, &arbev1.ListQueueRequest{ThreadId: t.GetId()})
	if err != nil {
		return err
	}
	req := &arbev1.ChangeQueueRequest{ThreadId: t.GetId(), Once: uuid.NewString()}
	if req.EntryId, req.Version, err = queuedMessage(ctx, c, t.GetId(), q.GetMessages(), message); err != nil {
		return err
	}
	if before != "" {
		if before, _, err = queuedMessage(ctx, c, t.GetId(), q.GetMessages(), before); err != nil {
			return err
		}
	}
	change(req, before)
	changed, err := c.Runs.ChangeQueue(ctx, req)
	if err != nil {
		return err
	}
	return a.showQueue(ctx, c, t, changed.GetMessages(), changed.GetTotal())
}

// queuedMessage returns the id and the version of a message that a person named by its position in the log or by its id. If
// it is not waiting, it returns only the id, and the server explains why.
func queuedMessage(ctx context.Context, c *arbe.Client, thread string, messages []*arbev1.QueuedMessage, ref string) (id string, version int64, err error) {
	seq, _ := strconv.ParseInt(strings.TrimPrefix(ref, "#"), 10, 64)
	for _, m := range messages {
		if m.GetEntryId() == ref || m.GetSeq() == seq {
			return m.GetEntryId(), m.GetVersion(), nil
		}
	}
	if seq < 1 {
		return ref, 0, nil
	}
	page, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, After: seq - 1, Limit: 1})
	if err != nil || len(page.GetEntries()) == 0 {
		return ref, 0, err
	}
	return page.GetEntries()[0].GetId(), 0, nil
}

const namesMessage = "MESSAGE is its position in the log, as arbe thread queue list shows it, or its id. "

func queueEdit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "edit THREAD MESSAGE TEXT",
		Short: "Change the text of a waiting message",
		Long: "Change the text of a waiting message. The log keeps the original. TEXT is Markdown; - reads it from stdin.\n" +
			namesMessage + "\n" +
			"It fails if the agent already has the message, or if somebody else changed it at the same time.",
		Example: "  arbe thread queue edit th4w7q2m9x 12 'run the tests first'",
		Args:    takes(3, 3, "a thread, a message and a text"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			text, err := a.text(ctx, args[2])
			if err != nil {
				return err
			}
			return a.changeQueue(ctx, c, args[0], args[1], "", func(req *arbev1.ChangeQueueRequest, _ string) {
				req.Change = &arbev1.ChangeQueueRequest_Edit{Edit: strings.ToValidUTF8(text, "\uFFFD")}
			})
		}),
	}
}

func queueMove(a *app) *cobra.Command {
	var before string
	var last bool
	cmd := &cobra.Command{
		Use:   "move THREAD MESSAGE",
		Short: "Move a waiting message before another one, or to the end",
		Long:  "Move a waiting message before another one, or to the end.\n" + namesMessage,
		Example: "  arbe thread queue move th4w7q2m9x 14 --before 12\n" +
			"  arbe thread queue move th4w7q2m9x 12 --last",
		Args: takes(2, 2, "a thread and a message"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if last == (before != "") {
				return fault.New(fault.Invalid, "the command does not say where to move the message", "give --before with a message, or --last")
			}
			return a.changeQueue(ctx, c, args[0], args[1], before, func(req *arbev1.ChangeQueueRequest, before string) {
				req.Change = &arbev1.ChangeQueueRequest_Move_{Move: &arbev1.ChangeQueueRequest_Move{BeforeEntryId: before}}
			})
		}),
	}
	cmd.Flags().StringVar(&before, "before", "", "waiting message before which to move it")
	cmd.Flags().BoolVar(&last, "last", false, "move it to the end")
	return cmd
}

func queueSend(a *app) *cobra.Command {
	var later bool
	cmd := &cobra.Command{
		Use:   "send THREAD MESSAGE",
		Short: "Send a waiting message to the agent now",
		Long: "Send a waiting message to the agent now: the agent gets it during its current work. With --later, the message waits\n" +
			"until that work is done. It fails if the agent takes no messages while it works: then the message is its next prompt.\n" + namesMessage,
		Example: "  arbe thread queue send th4w7q2m9x 12\n" +
			"  arbe thread queue send th4w7q2m9x 12 --later",
		Args: takes(2, 2, "a thread and a message"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			return a.changeQueue(ctx, c, args[0], args[1], "", func(req *arbev1.ChangeQueueRequest, _ string) {
				req.Change = &arbev1.ChangeQueueRequest_Queue{Queue: later}
			})
		}),
	}
	cmd.Flags().BoolVar(&later, "later", false, "let it wait until the current work is done")
	return cmd
}

func queueCancel(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel THREAD MESSAGE",
		Short: "Cancel a waiting message",
		Long: "Cancel a waiting message: the agent does not get it. The log keeps the original. To stop an agent that has it,\n" +
			"use arbe thread stop.\n" + namesMessage,
		Example: "  arbe thread queue cancel th4w7q2m9x 12",
		Args:    takes(2, 2, "a thread and a message"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			return a.changeQueue(ctx, c, args[0], args[1], "", func(req *arbev1.ChangeQueueRequest, _ string) {
				req.Change = &arbev1.ChangeQueueRequest_Cancel_{Cancel: &arbev1.ChangeQueueRequest_Cancel{}}
			})
		}),
	}
}

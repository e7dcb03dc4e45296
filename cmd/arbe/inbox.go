package main

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// needView is a thread that needs the caller, as JSON.
type needView struct {
	HouseID  string    `json:"house_id"`
	ThreadID string    `json:"thread_id"`
	Name     string    `json:"name"`
	Reasons  []string  `json:"reasons"`
	Seq      int64     `json:"seq"` // 0 if every entry was read
	At       time.Time `json:"at"`
	// Who needs the caller, and the sentence for the first reason; empty if they are not known.
	AgentID   string `json:"agent_id"`
	AgentName string `json:"agent_name"`
	Text      string `json:"text"`
}

// sentence returns who needs the caller, and with what.
func (v needView) sentence() string {
	if v.AgentName == "" || v.Text == "" {
		return v.AgentName + v.Text
	}
	return v.AgentName + ": " + v.Text
}

// needWords are the reasons why a thread needs somebody.
var needWords = map[arbev1.NeedReason]string{
	arbev1.NeedReason_NEED_REASON_APPROVAL: "approval", arbev1.NeedReason_NEED_REASON_MENTION: "mention",
	arbev1.NeedReason_NEED_REASON_FAILED: "failed", arbev1.NeedReason_NEED_REASON_FINISHED: "finished",
}

func inbox(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "List the threads that need you, in all your houses",
		Long: "List the threads that need you, latest first: a bot waits for approval (approval), somebody mentioned you\n" +
			"(mention), or work that you asked for has ended and you have not looked (failed, finished). SAID has who needs\n" +
			"you and the request, the message, why it failed, or the result. It covers all your houses, or the one of --house. Pages show the same number. arbe thread seen removes a thread from the list, as reading it in the\n" +
			"browser does.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			houses, err := a.searched(ctx, c, house)
			if err != nil {
				return err
			}
			rows := []row{}
			for _, h := range houses {
				got, err := c.Inboxes.GetInbox(ctx, &arbev1.GetInboxRequest{HouseId: h})
				if err != nil {
					return err
				}
				for _, n := range got.GetInbox().GetNeeds() {
					v := needView{HouseID: h, ThreadID: n.GetThreadId(), Name: n.GetThreadName(), Reasons: []string{}, Seq: n.GetSeq(), At: n.GetAt().AsTime(),
						AgentID: n.GetAgentId(), AgentName: n.GetAgentName(), Text: n.GetText()}
					for _, r := range n.GetReasons() {
						v.Reasons = append(v.Reasons, first(needWords[r], strings.ToLower(r.String())))
					}
					rows = append(rows, row{v.ThreadID, v, []string{v.ThreadID, strings.Join(v.Reasons, ", "), first(v.Name, "untitled"), v.sentence(), a.when(v.At)}})
				}
				if more := int(got.GetInbox().GetTotal()) - len(got.GetInbox().GetNeeds()); more > 0 {
					a.say("%d more threads of house %s need you; they are listed as you read these", more, h)
				}
			}
			return a.list([]string{"THREAD", "WHY", "NAME", "SAID", "SINCE"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

// readingView is the caller's reading position in a thread, as JSON.
type readingView struct {
	ThreadID string `json:"thread_id"`
	Seq      int64  `json:"seq"`
	Unread   int32  `json:"unread"`
	Muted    bool   `json:"muted"`
}

// reads makes a verb that changes how the caller reads a thread.
func reads(a *app, done string, change func(ctx context.Context, c *arbe.Client, thread string) (*arbev1.Reading, error), cmd *cobra.Command) *cobra.Command {
	cmd.Args = takes(0, 1, "one thread")
	cmd.ValidArgsFunction = a.proposesFirst(a.threads)
	cmd.RunE = a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
		id, err := a.threadID(ctx, c, firstOf(args))
		if err != nil {
			return err
		}
		now, err := change(ctx, c, id)
		if err != nil {
			return err
		}
		return a.show(id, readingView{id, now.GetSeq(), now.GetUnread(), now.GetMuted()}, func() string { return id + " is " + done })
	})
	return cmd
}

func threadSeen(a *app) *cobra.Command {
	return reads(a, "read", func(ctx context.Context, c *arbe.Client, thread string) (*arbev1.Reading, error) {
		now, err := c.Inboxes.MarkRead(ctx, &arbev1.MarkReadRequest{ThreadId: thread, Seq: math.MaxInt64})
		return now.GetReading(), err
	}, &cobra.Command{
		Use:   "seen [THREAD]",
		Short: "Mark a thread as read, so that it leaves your inbox",
		Long:  "Mark a thread as read up to its end, so that it leaves your inbox on all your devices. Requests for\napproval stay until somebody answers. THREAD defaults to $ARBE_THREAD.",
	})
}

// seen marks a thread as read up to an entry that was shown here, unless a program reads the output. If that fails, the
// thread only stays in the inbox.
func (a *app) seen(ctx context.Context, c *arbe.Client, thread string, seq int64) {
	if !a.json && !a.quiet && seq > 0 {
		_, _ = c.Inboxes.MarkRead(ctx, &arbev1.MarkReadRequest{ThreadId: thread, Seq: seq})
	}
}

func threadMute(a *app) *cobra.Command {
	return reads(a, "muted", mutes(true), &cobra.Command{
		Use:   "mute [THREAD]",
		Short: "Let a thread need you only when somebody mentions you",
		Long:  "Let a thread need you only when somebody mentions you. It is muted only for you. THREAD defaults to $ARBE_THREAD.",
	})
}

func threadUnmute(a *app) *cobra.Command {
	return reads(a, "not muted", mutes(false), &cobra.Command{
		Use:   "unmute [THREAD]",
		Short: "Undo arbe thread mute",
		Long:  "Undo arbe thread mute. THREAD defaults to $ARBE_THREAD.",
	})
}

func mutes(muted bool) func(ctx context.Context, c *arbe.Client, thread string) (*arbev1.Reading, error) {
	return func(ctx context.Context, c *arbe.Client, thread string) (*arbev1.Reading, error) {
		now, err := c.Inboxes.MuteThread(ctx, &arbev1.MuteThreadRequest{ThreadId: thread, Muted: muted})
		return now.GetReading(), err
	}
}

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadAnswering(a *app) *cobra.Command {
	nobody := false
	cmd := &cobra.Command{
		Use:   "answering THREAD [BOT]",
		Short: "Show or choose the bot that answers without being mentioned",
		Long: "Show which bots would answer a message without a mention in a thread, or choose the one that\n" +
			"does. If the first message of a thread mentions a single bot, that one answers in it until somebody chooses another.\n" +
			"A bot that is mentioned or replied to answers in any case.",
		Example: "  arbe thread answering th4w7q2m9xab\n" +
			"  arbe thread answering th4w7q2m9xab @reviewer\n" +
			"  arbe thread answering th4w7q2m9xab --nobody",
		Args:              takes(1, 2, "a thread, and a bot"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			t, err := a.getThread(ctx, c, args[0])
			if err != nil {
				return err
			}
			req := &arbev1.UpdateThreadRequest{Id: t.GetId(), AnsweringAgentId: new("")}
			switch {
			case nobody && len(args) == 2:
				return fault.New(fault.Invalid, "a bot and --nobody are both given", "leave out one of them")
			case len(args) == 2:
				b, note, err := a.getBot(ctx, c, t.GetHouseId(), args[1])
				if err != nil {
					return err
				}
				a.note(note)
				req.AnsweringAgentId = &b.Id
			case !nobody:
				return a.showAnswering(ctx, c, t)
			}
			return a.updateThread(ctx, c, req, "changed")
		}),
	}
	cmd.Flags().BoolVar(&nobody, "nobody", false, "bots answer only if they are mentioned or replied to")
	return cmd
}

// answererView is a bot that would answer, as JSON.
type answererView struct {
	BotID       string `json:"bot_id"`
	Bot         string `json:"bot"`
	Action      string `json:"action"`
	Reason      string `json:"reason"`
	Explanation string `json:"explanation"`
}

// showAnswering lists what a message without a mention would mean for the bots of a thread.
func (a *app) showAnswering(ctx context.Context, c *arbe.Client, t *arbev1.Thread) error {
	res, err := c.Entries.WhoAnswers(ctx, &arbev1.WhoAnswersRequest{ThreadId: t.GetId()})
	if err != nil {
		return err
	}
	var rows []row
	for _, r := range res.GetAnswerers() {
		v := answererView{BotID: r.GetAgentId(), Bot: "@" + strings.TrimPrefix(r.GetHandle(), "@"), Action: r.GetAction(), Reason: r.GetReason(), Explanation: r.GetExplanation()}
		rows = append(rows, row{id: v.BotID, view: v, columns: []string{v.Bot, v.Action, v.Explanation}})
	}
	return a.list([]string{"BOT", "ACTION", "WHY"}, rows)
}

package main

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// approvalView is a request for approval, as JSON.
type approvalView struct {
	ID         string          `json:"id"`
	HouseID    string          `json:"house_id"`
	ThreadID   string          `json:"thread_id"`
	TurnID     string          `json:"turn_id,omitempty"`
	Run        int64           `json:"run,omitempty"`
	BotID      string          `json:"bot_id"`
	Tool       string          `json:"tool"`
	Question   bool            `json:"question,omitempty"`
	Arguments  json.RawMessage `json:"arguments"`
	State      string          `json:"state"`
	AskedAt    time.Time       `json:"asked_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	AnsweredBy string          `json:"answered_by,omitempty"`
	AnsweredAt *time.Time      `json:"answered_at,omitempty"`
	Reason     string          `json:"reason,omitempty"`
}

func viewApproval(p *arbev1.Approval) approvalView {
	v := approvalView{ID: p.GetId(), HouseID: p.GetHouseId(), ThreadID: p.GetThreadId(), TurnID: p.GetTurnId(), Run: p.GetEpoch(), Question: p.GetQuestion(), BotID: p.GetAgentId(), Tool: p.GetTool(),
		Arguments: json.RawMessage(p.GetArguments()), State: arbev1.Word(p.GetState()), AskedAt: p.GetAskedAt().AsTime(), ExpiresAt: p.GetExpiresAt().AsTime(),
		AnsweredBy: p.GetAnsweredByAgentId(), Reason: p.GetReason()}
	if p.GetAnsweredAt() != nil {
		v.AnsweredAt = new(p.GetAnsweredAt().AsTime())
	}
	return v
}

// openApprovals returns the requests of a house that wait for an answer.
func openApprovals(ctx context.Context, c *arbe.Client, house, thread string) ([]*arbev1.Approval, error) {
	return pages(func(token string) ([]*arbev1.Approval, string, error) {
		page, err := c.Approvals.ListApprovals(ctx, &arbev1.ListApprovalsRequest{HouseId: house, ThreadId: thread, PageSize: 200, PageToken: token})
		return page.GetApprovals(), page.GetNextPageToken(), err
	})
}

// searched returns the houses in which to look up ids: the named house, or all houses of the caller.
func (a *app) searched(ctx context.Context, c *arbe.Client, house string) (ids []string, err error) {
	if first(house, a.getenv("ARBE_HOUSE")) != "" {
		house, err = a.inHouse(ctx, c, house)
		return []string{house}, err
	}
	all, err := allHouses(ctx, c)
	for _, h := range all {
		ids = append(ids, h.GetId())
	}
	return ids, err
}

// getApproval returns the request that a person named. The beginning of an id matches only waiting requests; a complete id
// matches any request.
func (a *app) getApproval(ctx context.Context, c *arbe.Client, house, ref string) (*arbev1.Approval, error) {
	houses, err := a.searched(ctx, c, house)
	if err != nil {
		return nil, err
	}
	open := map[string]*arbev1.Approval{}
	var named []thing
	for _, house := range houses {
		if shortID.MatchString(ref) {
			got, err := c.Approvals.GetApproval(ctx, &arbev1.GetApprovalRequest{HouseId: house, Id: ref})
			if err == nil {
				return got.GetApproval(), nil
			} else if connect.CodeOf(err) != connect.CodeNotFound {
				return nil, err
			}
			continue
		}
		list, err := openApprovals(ctx, c, house, "")
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			open[p.GetId()] = p
			named = append(named, thing{id: p.GetId()})
		}
	}
	id, err := kind{noun: "request for approval", plural: "requests for approval", list: "arbe approval list"}.pick(ref, named)
	return open[id], err
}

func (a *app) approvals(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	houses, err := a.searched(ctx, c, "")
	for _, house := range houses {
		list, err := openApprovals(ctx, c, house, "")
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			found = append(found, thing{p.GetId(), p.GetTool()})
		}
	}
	return found, err
}

func approvalList(a *app) *cobra.Command {
	var house, thread string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tool calls that wait for a person's approval",
		Long: "List the tool calls for which bots of a house wait for approval, oldest first. arbe approval show shows exactly what\n" +
			"will run; arbe approve and arbe deny answer.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) (err error) {
			if thread != "" {
				t, err := a.getThread(ctx, c, thread)
				if err != nil {
					return err
				}
				house, thread = t.GetHouseId(), t.GetId()
			}
			if house, err = a.inHouse(ctx, c, house); err != nil {
				return err
			}
			list, err := openApprovals(ctx, c, house, thread)
			if err != nil {
				return err
			}
			rows := make([]row, len(list))
			for i, p := range list {
				rows[i] = row{p.GetId(), viewApproval(p), []string{
					p.GetId(), p.GetAgentName(), export.Call(entry.PiBlock{Name: p.GetTool(), Arguments: json.RawMessage(p.GetArguments())}),
					first(p.GetThreadName(), p.GetThreadId()), a.when(p.GetAskedAt().AsTime()),
				}}
			}
			return a.list([]string{"ID", "BOT", "WANTS TO", "THREAD", "ASKED"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().StringVarP(&thread, "thread", "t", "", "only requests of this thread")
	a.completes(cmd, "thread", a.threads)
	return cmd
}

func approvalShow(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:               "show APPROVAL",
		Short:             "Show exactly what runs if a person approves",
		Args:              takes(1, 1, "one request for approval, by its id"),
		ValidArgsFunction: a.proposesFirst(a.approvals),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			p, err := a.getApproval(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			return a.show(p.GetId(), viewApproval(p), func() string {
				lines := append([]string{p.GetAgentName() + " asks whether it may call " + p.GetTool()}, export.Arguments(json.RawMessage(p.GetArguments()), 0)...)
				lines = append(lines, "state: "+stateOf(p))
				return entry.Printable(strings.Join(lines, "\n"))
			})
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

// stateOf describes the state of a request.
func stateOf(p *arbev1.Approval) string {
	text := arbev1.Word(p.GetState())
	switch {
	case text == "open":
		return "waits for an answer until " + p.GetExpiresAt().AsTime().UTC().Format(time.RFC3339)
	case p.GetAnsweredByAgentId() != "":
		text += " by " + first(p.GetAnsweredByName(), "someone who left")
	}
	if p.GetReason() != "" {
		text += ": " + p.GetReason()
	}
	return text
}

func approve(a *app) *cobra.Command {
	return answers(a, arbev1.Verdict_VERDICT_APPROVE, &cobra.Command{
		Use:   "approve APPROVAL [REASON…]",
		Short: "Approve a bot's request to use a tool, or answer its question",
		Long: "Approve a bot's request to use a tool: it then runs exactly what arbe approval show shows, once. To answer\n" +
			"a question of a coding agent, give the answer after its id. The first answer counts. Only people answer, with their own\n" +
			"credentials.",
		Example: "  arbe approval list\n" +
			"  arbe approve 5k2m8q1d7xwz\n" +
			"  arbe approve 5k2m8q1d7xwz take the blue one",
	})
}

func deny(a *app) *cobra.Command {
	return answers(a, arbev1.Verdict_VERDICT_DENY, &cobra.Command{
		Use:     "deny APPROVAL [REASON…]",
		Short:   "Deny a bot's request to use a tool",
		Long:    "Deny a bot's request to use a tool. The bot reads the reason, and continues without the tool.",
		Example: "  arbe deny 5k2m8q1d7xwz not before the release",
	})
}

// answers makes a verb that answers a request.
func answers(a *app, verdict arbev1.Verdict, cmd *cobra.Command) *cobra.Command {
	var house string
	cmd.Args = takes(1, math.MaxInt, "a request for approval, by its id, and your words to the bot")
	cmd.ValidArgsFunction = a.proposesFirst(a.approvals)
	cmd.RunE = a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
		p, err := a.getApproval(ctx, c, house, args[0])
		if err != nil {
			return err
		}
		done, err := c.Approvals.AnswerApproval(ctx, &arbev1.AnswerApprovalRequest{ThreadId: p.GetThreadId(), Id: p.GetId(), Verdict: verdict, Reason: strings.Join(args[1:], " ")})
		if err != nil {
			return err
		}
		p = done.GetApproval()
		return a.show(p.GetId(), viewApproval(p), func() string {
			return arbev1.Word(p.GetState()) + ": " + entry.PrintableLine(first(p.GetAgentName(), "the bot")) + " in thread " + p.GetThreadId()
		})
	})
	a.houseFlag(cmd, &house)
	return cmd
}

// botTools lists the tools of bots, and on whose behalf each acts.
func botTools(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that bots may have, and on whose behalf each acts",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			list, err := c.Bots.ListTools(ctx, &arbev1.ListToolsRequest{HouseId: in})
			if err != nil {
				return err
			}
			rows := make([]row, len(list.GetTools()))
			for i, t := range list.GetTools() {
				asks := ""
				if t.GetAsk() {
					asks = "always asks"
				}
				view := botToolView{t.GetName(), t.GetDescription(), t.GetBehalf(), t.GetAsk()}
				rows[i] = row{t.GetName(), view, []string{t.GetName(), asks, t.GetBehalf()}}
			}
			return a.list([]string{"NAME", "", "ACTS ON BEHALF OF"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

// houseAsk shows and sets the tools for which all bots of a house need a person's approval.
func houseAsk(a *app) *cobra.Command {
	var house string
	var none bool
	cmd := &cobra.Command{
		Use:   "ask [TOOL…]",
		Short: "Show or set the tools for which every bot of a house needs approval",
		Long: "Show or, with TOOL, set the tools for which every bot of a house needs a person's approval. A bot can need it for\n" +
			"more tools (arbe bot create --ask), but not for fewer. With --none, only the bots' own settings apply. Only\n" +
			"owners set it.",
		Example: "  arbe house ask run_command say create_thread\n" +
			"  arbe house ask --none",
		Args: takes(0, math.MaxInt, "names of tools"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if none && len(args) > 0 {
				return fault.New(fault.Invalid, "tools and --none are both given", "leave one out")
			}
			id, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			if none || len(args) > 0 {
				if _, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: id, Ask: namesIn(args)}); err != nil {
					return err
				}
			}
			got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: id})
			if err != nil {
				return err
			}
			view := houseAskView{id, append([]string{}, got.GetHouse().GetAsk()...)}
			return a.show(id, view, func() string { return first(strings.Join(view.Ask, ", "), "no tool") })
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&none, "none", false, "no tool")
	return cmd
}

// namesIn splits arguments that may each hold several names separated by commas. It skips empty names.
func namesIn(args []string) *arbev1.Names {
	n := &arbev1.Names{}
	for _, arg := range args {
		for name := range strings.SplitSeq(arg, ",") {
			if name = strings.TrimSpace(name); name != "" {
				n.Values = append(n.Values, name)
			}
		}
	}
	return n
}

type botToolView struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Behalf      string `json:"behalf"`
	Ask         bool   `json:"ask"`
}

type houseAskView struct {
	HouseID string   `json:"house_id"`
	Ask     []string `json:"ask"` // always present
}

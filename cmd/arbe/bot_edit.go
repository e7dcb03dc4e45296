package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func botEdit(a *app) *cobra.Command {
	var house string
	var noCheck bool
	cmd := &cobra.Command{
		Use:   "edit BOT",
		Short: "Edit a bot in your editor, or change it from stdin",
		Long: "Edit a bot and its policies in $VISUAL or $EDITOR (default vi) or, when stdin is not a terminal, change it as\n" +
			"stdin says, in YAML or JSON as arbe bot show prints it. Fields that the text leaves out do not change.",
		Example: "  arbe bot edit @reviewer\n" +
			"  echo 'model: openai/gpt-5' | arbe bot edit @reviewer",
		Args:              takes(1, 1, "one bot, by @handle, id or name"),
		ValidArgsFunction: a.proposesFirst(a.bots),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			b, _, err := a.getBot(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			before, err := fileOf(b)
			if err != nil {
				return err
			}
			text, err := before.text()
			if err != nil {
				return err
			}
			return a.edit(ctx, edited{
				noun: "bot", verb: "arbe bot edit @" + b.GetHandle(), text: text,
				change: func(from io.Reader) error {
					// A limit that the text leaves out must stay, although the call replaces all limits.
					f := botFile{Limits: new(limitsOf(b.GetLimits()))}
					if err := readBot(from, &f); err != nil {
						return err
					}
					return a.changeBot(ctx, c, b, f, noCheck)
				},
				unchanged: func() error {
					return a.show(b.GetId(), viewBot(b), func() string { return "unchanged @" + b.GetHandle() })
				},
			})
		}),
	}
	a.houseFlag(cmd, &house)
	noCheckFlag(cmd, &noCheck, "set the model although its provider does not list it")
	return cmd
}

// changeBot changes a bot to match its file.
func (a *app) changeBot(ctx context.Context, c *arbe.Client, b *arbev1.Bot, f botFile, noCheck bool) error {
	req := &arbev1.UpdateBotRequest{HouseId: b.GetHouseId(), Id: b.GetId(), Etag: b.GetEtag(), Handle: f.Handle, Name: f.Name, Instructions: f.Instructions, Model: f.Model, Think: f.Think, SkipModelCheck: noCheck}
	if f.Tools != nil {
		req.Tools = &arbev1.Names{Values: *f.Tools}
	}
	if f.Ask != nil {
		req.Ask = &arbev1.Names{Values: *f.Ask}
	}
	if f.Limits != nil {
		req.Limits = f.Limits.message()
	}
	changed, err := c.Bots.UpdateBot(ctx, req)
	if err != nil {
		return err
	}
	a.unverified(changed.GetUnverifiedModel())
	if f.Policies != nil {
		if err := changePolicies(ctx, c, b, *f.Policies); err != nil {
			return err
		}
	}
	got, err := c.Bots.GetBot(ctx, &arbev1.GetBotRequest{HouseId: b.GetHouseId(), Which: &arbev1.GetBotRequest_Id{Id: b.GetId()}})
	if err != nil {
		return err
	}
	a.note(got.GetNote())
	now := got.GetBot()
	return a.show(now.GetId(), viewBot(now), func() string { return "changed @" + now.GetHandle() })
}

// changePolicies changes the policies of a bot to match its file. It changes policies before it deletes any, so that a
// mistake in one policy leaves the bot awake.
func changePolicies(ctx context.Context, c *arbe.Client, b *arbev1.Bot, wanted []botWaker) error {
	has := func(id string) bool {
		return slices.ContainsFunc(b.GetPolicies(), func(p *arbev1.Policy) bool { return p.GetId() == id })
	}
	for _, w := range wanted {
		config, err := w.config()
		if err != nil {
			return err
		}
		switch {
		case w.ID == "":
			_, err = c.Bots.CreatePolicy(ctx, &arbev1.CreatePolicyRequest{HouseId: b.GetHouseId(), BotId: b.GetId(), Name: w.Name, Trigger: w.Trigger,
				Config: config, ToolIds: w.tools().GetValues(), Disabled: w.Enabled != nil && !*w.Enabled})
		case !has(w.ID):
			err = fault.Newf(fault.NotFound, "leave the id out to add a policy", "policies: the bot has no policy %q", w.ID)
		default:
			_, err = c.Bots.UpdatePolicy(ctx, &arbev1.UpdatePolicyRequest{HouseId: b.GetHouseId(), Id: w.ID, Name: &w.Name, Trigger: &w.Trigger,
				Config: &config, ToolIds: w.tools(), Enabled: w.Enabled})
		}
		if err != nil {
			return err
		}
	}
	for _, p := range b.GetPolicies() {
		if slices.ContainsFunc(wanted, func(w botWaker) bool { return w.ID == p.GetId() }) {
			continue
		}
		if _, err := c.Bots.DeletePolicy(ctx, &arbev1.DeletePolicyRequest{HouseId: b.GetHouseId(), Id: p.GetId()}); err != nil {
			return err
		}
	}
	return nil
}

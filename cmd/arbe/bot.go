package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// note prints on stderr which settings of a bot have no effect.
func (a *app) note(words string) {
	if words != "" {
		a.say("arbe: %s", entry.Printable(words))
	}
}

// efforts lists the efforts that a flag proposes.
func efforts(context.Context, *arbe.Client) (found []thing, err error) {
	for _, e := range entry.Efforts {
		found = append(found, thing{id: string(e)})
	}
	return found, nil
}

// getBot returns the bot of a house that a person named by @handle, id or name, and a note on its settings.
func (a *app) getBot(ctx context.Context, c *arbe.Client, house, ref string) (*arbev1.Bot, string, error) {
	in, err := a.inHouse(ctx, c, house)
	if err != nil {
		return nil, "", err
	}
	id, err := a.find(ctx, c, botKind, in, ref)
	if err != nil {
		return nil, "", err
	}
	got, err := c.Bots.GetBot(ctx, &arbev1.GetBotRequest{HouseId: in, Which: &arbev1.GetBotRequest_Id{Id: id}})
	return got.GetBot(), got.GetNote(), err
}

type botView struct {
	ID           string        `json:"id"`
	HouseID      string        `json:"house_id"`
	Handle       string        `json:"handle"`
	Name         string        `json:"name"`
	Runtime      string        `json:"runtime"`
	Instructions string        `json:"instructions,omitempty"`
	Model        string        `json:"model,omitempty"`
	Think        string        `json:"think,omitempty"`
	Tools        []string      `json:"tools"` // always present; empty means no tool
	Ask          []string      `json:"ask,omitempty"`
	Limits       botLimits     `json:"limits,omitzero"`
	Policies     []botPolicyAs `json:"policies"`
	CreatedAt    time.Time     `json:"created_at"`
	UpdatedAt    time.Time     `json:"updated_at"`
}

type botPolicyAs struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Trigger string          `json:"trigger"`
	Config  json.RawMessage `json:"config"`
	Tools   []string        `json:"tools,omitempty"`
	Enabled bool            `json:"enabled"`
}

func viewBot(b *arbev1.Bot) botView {
	v := botView{ID: b.GetId(), HouseID: b.GetHouseId(), Handle: b.GetHandle(), Name: b.GetName(), Runtime: b.GetRuntime(), Instructions: b.GetInstructions(),
		Model: b.GetModel(), Think: b.GetThink(), Tools: append([]string{}, b.GetTools()...), Ask: b.GetAsk(), Limits: limitsOf(b.GetLimits()), Policies: []botPolicyAs{},
		CreatedAt: b.GetCreatedAt().AsTime(), UpdatedAt: b.GetUpdatedAt().AsTime()}
	for _, p := range b.GetPolicies() {
		v.Policies = append(v.Policies, botPolicyAs{p.GetId(), p.GetName(), p.GetTrigger(), json.RawMessage(p.GetConfig()), p.GetToolIds(), p.GetEnabled()})
	}
	return v
}

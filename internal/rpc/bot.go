package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type botService struct{ Services }

func (s *botService) CreateBot(ctx context.Context, req *arbev1.CreateBotRequest) (*arbev1.CreateBotResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	think, err := entry.ParseEffort(req.GetThink())
	if err != nil {
		return nil, err
	}
	if err := s.knows(req.GetRuntime()); err != nil {
		return nil, err
	}
	draft := bot.Draft{Handle: req.GetHandle(), Name: req.GetName(), Runtime: req.GetRuntime(), Instructions: req.GetInstructions(),
		Model: req.GetModel(), Think: think, Limits: botLimits(req.GetLimits())}
	if tools := names(req.GetTools()); tools != nil {
		draft.Tools = *tools
	}
	draft.Ask = req.GetAsk().GetValues()
	unverified, err := s.checkModel(ctx, scope, &draft.Model, req.GetSkipModelCheck())
	if err != nil {
		return nil, err
	}
	made, err := s.Bots.Create(ctx, scope, draft)
	if err != nil {
		return nil, err
	}
	return &arbev1.CreateBotResponse{Bot: wholeBot(made), Note: s.note(ctx, made), UnverifiedModel: unverified}, nil
}

// note says which settings of a bot have no effect.
func (s *botService) note(ctx context.Context, b bot.Bot) string {
	if b.Think == entry.EffortDefault || s.Models == nil {
		return ""
	}
	m, err := s.Models.Models(ctx, b.House)
	if err != nil { // other code reports problems with the bot's model
		return ""
	}
	name, id, _ := strings.Cut(cmp.Or(b.Model, m.Default.String()), "/")
	for _, f := range m.Found {
		if f.Endpoint.Name == name {
			return model.NoteOn(f.Endpoint.Provider, id, b.Think)
		}
	}
	return ""
}

func (s *botService) GetBot(ctx context.Context, req *arbev1.GetBotRequest) (*arbev1.GetBotResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	var got bot.Bot
	if req.GetId() != "" {
		got, err = s.Bots.Get(ctx, scope, req.GetId())
	} else {
		got, err = s.Bots.GetByHandle(ctx, scope, req.GetHandle())
	}
	if err != nil {
		return nil, err
	}
	atWork, err := s.Dispatcher.AtWork(ctx, scope, got.ID)
	if err != nil {
		return nil, err
	}
	return &arbev1.GetBotResponse{Bot: wholeBot(got), TurnsAtWork: int32(atWork), Note: s.note(ctx, got)}, nil
}

func (s *botService) ListBots(ctx context.Context, req *arbev1.ListBotsRequest) (*arbev1.ListBotsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	after, err := botList.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	rows, err := s.Bots.List(ctx, scope, after.ID, size+1)
	if err != nil {
		return nil, err
	}
	rows, next := cut(botList, rows, size, func(b bot.Bot) bookmark { return bookmark{Time: b.CreatedAt, ID: b.Handle} })
	return &arbev1.ListBotsResponse{Bots: each(rows, wireBot), NextPageToken: next}, nil
}

func (s *botService) UpdateBot(ctx context.Context, req *arbev1.UpdateBotRequest) (*arbev1.UpdateBotResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	change := bot.Change{ETag: req.GetEtag(), Handle: req.Handle, Name: req.Name, Instructions: req.Instructions, Model: req.Model, Tools: names(req.GetTools()), Ask: names(req.GetAsk())}
	if req.GetLimits() != nil {
		change.Limits = new(botLimits(req.GetLimits()))
	}
	if req.Think != nil {
		think, err := entry.ParseEffort(req.GetThink())
		if err != nil {
			return nil, err
		}
		change.Think = &think
	}
	var unverified string
	if change.Model != nil {
		now, err := s.Bots.Get(ctx, scope, req.GetId())
		if err != nil {
			return nil, err
		}
		if now.Model != *change.Model {
			if unverified, err = s.checkModel(ctx, scope, change.Model, req.GetSkipModelCheck()); err != nil {
				return nil, err
			}
		}
	}
	changed, err := s.Bots.Edit(ctx, scope, req.GetId(), change)
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdateBotResponse{Bot: wholeBot(changed), Note: s.note(ctx, changed), UnverifiedModel: unverified}, nil
}

// checkModel checks a model before a bot or a thread gets it, unless it is empty. unverified says why it is unknown whether
// the model exists.
func (s *Services) checkModel(ctx context.Context, scope db.Scope, model *string, skip bool) (unverified string, err error) {
	if *model == "" || skip {
		return "", nil
	}
	ref, unverified, err := s.Models.CheckModel(ctx, scope.House, *model)
	if err == nil {
		*model = ref.String()
	}
	return unverified, err
}

func (s *botService) DeleteBot(ctx context.Context, req *arbev1.DeleteBotRequest) (*arbev1.DeleteBotResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	// Check that the id is a bot's, because removing a member would also remove a person.
	if _, err := s.Bots.Get(ctx, scope, req.GetId()); fault.CodeOf(err) == fault.NotFound {
		return &arbev1.DeleteBotResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	stopped, err := s.removeMember(ctx, scope, req.GetId())
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return nil, err
	}
	return &arbev1.DeleteBotResponse{StoppedTurns: int32(stopped)}, nil
}

func (s *botService) ListTools(ctx context.Context, req *arbev1.ListToolsRequest) (*arbev1.ListToolsResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	h, err := s.Houses.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	tools, err := s.Dispatcher.Tools(ctx, scope, "")
	if err != nil {
		return nil, err
	}
	return &arbev1.ListToolsResponse{Tools: each(tools, func(t turn.Tool) *arbev1.Tool {
		return &arbev1.Tool{Name: t.Name, Description: t.Description, Behalf: t.Behalf, Ask: slices.Contains(h.Ask, t.Name)}
	})}, nil
}

func (s *botService) ListRuntimes(ctx context.Context, req *arbev1.ListRuntimesRequest) (*arbev1.ListRuntimesResponse, error) {
	if _, err := s.Auth.Authorize(ctx, auth.Read, auth.House(req.GetHouseId())); err != nil {
		return nil, err
	}
	own := &arbev1.Runtime{Name: bot.InServer, Title: "arbe", Steers: true, Asks: true, Interrupts: true, Limits: "it answers in its thread, and takes no tasks of its own"}
	return &arbev1.ListRuntimesResponse{Runtimes: append([]*arbev1.Runtime{own}, each(s.Agents, wireRuntime)...)}, nil
}

// knows returns an error for a runtime that this server does not have.
func (s Services) knows(runtime string) error {
	names := []string{bot.InServer}
	for _, a := range s.Agents {
		names = append(names, a.Name)
	}
	if runtime == "" || slices.Contains(names, runtime) {
		return nil
	}
	return fault.Newf(fault.Invalid, "use one of "+strings.Join(names, ", "), "runtime: there is no runtime %q", entry.Clip(runtime, 64))
}

func (s *botService) CreatePolicy(ctx context.Context, req *arbev1.CreatePolicyRequest) (*arbev1.CreatePolicyResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	made, err := s.Bots.CreatePolicy(ctx, scope, bot.Policy{Bot: req.GetBotId(), Name: req.GetName(), Trigger: req.GetTrigger(),
		Config: json.RawMessage(req.GetConfig()), Resources: req.GetResourceIds(), Tools: req.GetToolIds(), Enabled: !req.GetDisabled()})
	if err != nil {
		return nil, err
	}
	return &arbev1.CreatePolicyResponse{Policy: wirePolicy(made)}, nil
}

func (s *botService) UpdatePolicy(ctx context.Context, req *arbev1.UpdatePolicyRequest) (*arbev1.UpdatePolicyResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	changed, err := s.Bots.EditPolicy(ctx, scope, req.GetId(), bot.PolicyChange{Name: req.Name, Trigger: req.Trigger, Config: json.RawMessage(req.GetConfig()),
		Resources: names(req.GetResourceIds()), Tools: names(req.GetToolIds()), Enabled: req.Enabled, ETag: req.GetEtag()})
	if err != nil {
		return nil, err
	}
	return &arbev1.UpdatePolicyResponse{Policy: wirePolicy(changed)}, nil
}

func (s *botService) DeletePolicy(ctx context.Context, req *arbev1.DeletePolicyRequest) (*arbev1.DeletePolicyResponse, error) {
	scope, err := s.Auth.Authorize(ctx, auth.Own, auth.House(req.GetHouseId()))
	if err != nil {
		return nil, err
	}
	return &arbev1.DeletePolicyResponse{}, s.Bots.DeletePolicy(ctx, scope, req.GetId())
}

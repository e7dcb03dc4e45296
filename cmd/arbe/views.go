package main

import (
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/export"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The views are the output of --json: the contract's messages with the contract's names, numbers as numbers, times as RFC
// 3339 text. A field that is not set is left out, unless its comment says otherwise.

type houseView struct {
	ID                   string    `json:"id"`
	Name                 string    `json:"name"`
	Role                 string    `json:"role"`
	DefaultEnvironmentID string    `json:"default_environment_id,omitempty"`
	DefaultModel         string    `json:"default_model,omitempty"`
	HouseUSDDay          float64   `json:"house_usd_day,omitempty"` // absent for the default
	PrimaryThreadID      string    `json:"primary_thread_id,omitempty"`
	CreatedAt            time.Time `json:"created_at"`
}

func viewHouse(h *arbev1.House) houseView {
	return houseView{
		ID: h.GetId(), Name: h.GetName(), Role: h.GetRole(), DefaultEnvironmentID: h.GetDefaultEnvironmentId(), DefaultModel: h.GetDefaultModel(),
		HouseUSDDay: h.GetLimits().GetHouseUsdDay(), PrimaryThreadID: h.GetPrimaryThreadId(), CreatedAt: h.GetCreatedAt().AsTime(),
	}
}

type keyView struct {
	ID         string     `json:"id"`
	HouseID    string     `json:"house_id,omitempty"` // absent for a key of all houses
	AgentID    string     `json:"agent_id"`
	Name       string     `json:"name"`
	CreatedBy  string     `json:"created_by,omitempty"` // absent for a bot's key that is older than this record
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

func viewKey(k *arbev1.APIKey) keyView {
	return keyView{
		ID: k.GetId(), HouseID: k.GetHouseId(), AgentID: k.GetAgentId(), Name: k.GetName(), CreatedBy: k.GetCreatedBy(), CreatedAt: k.GetCreatedAt().AsTime(),
		ExpiresAt: export.Optional(k.GetExpiresAt()), RevokedAt: export.Optional(k.GetRevokedAt()), LastUsedAt: export.Optional(k.GetLastUsedAt()),
	}
}

type tokenView struct {
	Token     string    `json:"token"`
	ThreadID  string    `json:"thread_id"`
	AgentID   string    `json:"agent_id"`
	Scopes    []string  `json:"scopes"`
	ExpiresAt time.Time `json:"expires_at"`
}

// deltaView is a piece of a running command's output. Data that is not UTF-8 text is in base64, because a JSON string
// cannot hold it.
type deltaView struct {
	EntryID    string `json:"entry_id"`
	Offset     int64  `json:"offset"`
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"`
}

type secretView struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	CreatedAt time.Time       `json:"created_at"`
	SetAt     time.Time       `json:"set_at"`
	SetBy     string          `json:"set_by_agent_id,omitempty"`
	UsedAt    *time.Time      `json:"used_at,omitempty"`
	Redacted  bool            `json:"redacted"`
	Uses      []secretUseView `json:"uses"`
}

type secretUseView struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func viewSecret(s *arbev1.Secret) secretView {
	v := secretView{ID: s.GetId(), Name: s.GetName(), CreatedAt: s.GetCreatedAt().AsTime(), SetAt: s.GetSetAt().AsTime(), SetBy: s.GetSetByAgentId(),
		UsedAt: export.Optional(s.GetUsedAt()), Redacted: s.GetRedacted(), Uses: []secretUseView{}}
	for _, u := range s.GetUses() {
		v.Uses = append(v.Uses, secretUseView{u.GetKind(), u.GetName()})
	}
	return v
}

type endpointView struct {
	Name         string   `json:"name"`
	Provider     string   `json:"provider"`
	BaseURL      string   `json:"base_url"`
	Dialect      string   `json:"dialect"`
	Source       string   `json:"source"`
	SecretName   string   `json:"secret_name,omitempty"`
	Own          bool     `json:"own"`
	Models       []string `json:"models"`
	DefaultModel string   `json:"default_model,omitempty"`
	Problem      string   `json:"problem,omitempty"`
	// HouseDefault is the house's default model if this endpoint has it, and absent otherwise.
	HouseDefault string `json:"house_default,omitempty"`
}

// viewEndpoint returns the view of an endpoint of a list. A nil list means that the endpoint is in no list.
func viewEndpoint(e *arbev1.ModelEndpoint, of *arbev1.ListModelsResponse) endpointView {
	v := endpointView{Name: e.GetName(), Provider: e.GetProvider(), BaseURL: e.GetBaseUrl(), Dialect: e.GetDialect(), Source: e.GetSource(), SecretName: e.GetSecretName(),
		Own: e.GetOwn(), Models: e.GetModels(), DefaultModel: e.GetDefaultModel(), Problem: e.GetProblem()}
	if v.Models == nil {
		v.Models = []string{}
	}
	if strings.HasPrefix(of.GetDefaultModel(), e.GetName()+"/") {
		v.HouseDefault = of.GetDefaultModel()
	}
	return v
}

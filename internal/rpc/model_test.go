package rpc_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/model"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestWrongModelsAndKeysAreRefused checks that errors say what is wrong, and that nothing is stored.
func TestWrongModelsAndKeysAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	for url, says := range map[string]string{
		"file:///etc/passwd":                      `begins with "file", not with https`,
		"gopher://models.example.com/":            `begins with "gopher"`,
		"models.example.com/v1":                   "not an address",
		"https:///v1":                             "names no server",
		"http://169.254.169.254/latest/meta-data": "metadata service",
		"http://[fd00:ec2::254]/latest/meta-data": "metadata service",
		"http://[::ffff:169.254.169.254]/":        "metadata service",
		"http://metadata.google.internal/":        "metadata service",
		"http://2852039166/":                      "unusual form", // 169.254.169.254
		"http://169.254.43518/":                   "unusual form",
		"http://0xA9FEA9FE./":                     "unusual form",
		"http://127.0.0.1:11434/v1":               "public internet",
		"http://localhost:11434/v1":               "public internet",
		"https://user:password@example.com/v1":    "it has a user",
	} {
		t.Run(url, func(t *testing.T) {
			_, err := ada.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "lab", BaseUrl: url})
			refused(t, err, connect.CodeInvalidArgument)
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("it says %v, want %q", err, says)
			}
			if next := arbev1.ErrorInfoOf(err).GetNext(); next == "" {
				t.Errorf("%v has no next step", err)
			}
		})
	}
	for name, key := range map[string]string{"two lines": "sk-ant-one\nsk-ant-two", "CR LF": "sk-ant-one\r\nX-Header: 1", "a trailing line": "sk-ant-one\n"} {
		t.Run("a key with "+name, func(t *testing.T) {
			_, err := ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "ANTHROPIC_API_KEY", Value: []byte(key)})
			refused(t, err, connect.CodeInvalidArgument, "line")
			if err != nil && strings.Contains(err.Error(), "sk-ant") {
				t.Errorf("it repeats the key: %v", err)
			}
		})
	}
	long := strings.Repeat("x", 1<<20)
	for name, draft := range map[string]*arbev1.CreateBotRequest{
		"instructions: at most 64 KiB": {Instructions: long},
		"does not say which provider":  {Model: "gpt-5"},
		"which of the provider's":      {Model: "openai/"},
	} {
		t.Run(name, func(t *testing.T) {
			draft.HouseId, draft.Handle = house, "wrong"
			_, err := ada.Bots.CreateBot(t.Context(), draft)
			refused(t, err, connect.CodeInvalidArgument, name)
			arbe, err := ada.Bots.GetBot(t.Context(), &arbev1.GetBotRequest{HouseId: house, Which: &arbev1.GetBotRequest_Handle{Handle: "arbe"}})
			must(t, err)
			change := &arbev1.UpdateBotRequest{HouseId: house, Id: arbe.Bot.Id}
			if draft.Model != "" {
				change.Model = &draft.Model
			} else {
				change.Instructions = &draft.Instructions
			}
			_, err = ada.Bots.UpdateBot(t.Context(), change)
			refused(t, err, connect.CodeInvalidArgument, name)
		})
	}
	for table, want := range map[string]int{"model_endpoints": 0, "secrets": 0, "bots where handle = 'wrong'": 0, "bots where model <> '' or length(instructions) > 1000": 0} {
		var n int
		must(t, b.owner.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
		if n != want {
			t.Errorf("there are %d %s", n, table)
		}
	}
}

// TestListedModelsSayWhatTheyCost checks prices and context windows against the catalog.
func TestListedModelsSayWhatTheyCost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	b.providers.Offer("", "claude-opus-4-8", "claude-unheard-of", "claude-haiku-4-5-20251001")
	_, err := ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "ANTHROPIC_API_KEY", Value: []byte("sk-ant-priced"), SkipCheck: true})
	must(t, err)
	list, err := ada.Models.ListModels(t.Context(), &arbev1.ListModelsRequest{HouseId: house})
	must(t, err)
	if len(list.Endpoints) != 1 || len(list.Endpoints[0].Infos) != 2 {
		t.Fatalf("it says of %v, want the prices of two models", list.Endpoints)
	}
	e := list.Endpoints[0]
	for _, info := range e.Infos {
		known := model.Lookup(model.Anthropic, info.Id)
		if !known.Known || info.ContextWindow != known.ContextWindow || info.Price == nil {
			t.Errorf("%s has a window of %d and the price %v; the catalog says %+v", info.Id, info.ContextWindow, info.Price, known)
		} else if got, want := info.Price.OutputUsd, float64(known.Price.Output)*1e6/float64(model.Dollar); got != want {
			t.Errorf("a million tokens of output of %s cost $%v, want $%v", info.Id, got, want)
		}
	}
}

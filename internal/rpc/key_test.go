package rpc_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestAKeyIsTriedAndSaysWhoCanUseIt checks that a wrong key changes nothing, and that the error has the provider's words.
func TestAKeyIsTriedAndSaysWhoCanUseIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	b.providers.Offer("sk-ant-good-0001", "claude-sonnet-4-6", "claude-opus-4-6")
	set := func(value string, skip bool) (*arbev1.SetSecretResponse, error) {
		return ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "ANTHROPIC_API_KEY", Value: []byte(value), SkipCheck: skip})
	}
	res, err := set("sk-ant-good-0001", false)
	must(t, err)
	list, err := ada.Models.ListModels(t.Context(), &arbev1.ListModelsRequest{HouseId: house})
	must(t, err)
	used := "default model " + list.DefaultModel + ", bot @arbe"
	if c := res.Check; !c.GetTried() || c.GetModels() != 2 || c.GetSummary() != "Anthropic accepts the key and lists 2 models. The bots of Ada's can use it for all members; now these do: "+used+"." {
		t.Errorf("it says %+v", c)
	}
	if got := strings.Join(list.Endpoints[0].Models, " "); got != "claude-sonnet-4-6 claude-opus-4-6" || list.Endpoints[0].Dialect != "messages" {
		t.Errorf("it lists %q, which speak %q", got, list.Endpoints[0].Dialect)
	}
	before := res.Secret.SetAt.AsTime()
	_, err = set("sk-ant-wrong-0002", false)
	refused(t, err, connect.CodeInvalidArgument, "value: Anthropic does not accept the key: invalid x-api-key")
	if next := arbev1.ErrorInfoOf(err).GetNext(); !strings.Contains(next, "https://console.anthropic.com/settings/keys") || !strings.Contains(next, "nothing was changed") {
		t.Errorf("next is %q", next)
	}
	secrets, err := ada.Secrets.ListSecrets(t.Context(), &arbev1.ListSecretsRequest{HouseId: house})
	must(t, err)
	if len(secrets.Secrets) != 1 || !secrets.Secrets[0].SetAt.AsTime().Equal(before) {
		t.Errorf("there are %v", secrets.Secrets)
	}
	_, err = ada.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "lab", BaseUrl: "https://lab.example/v1", Key: "sk-lab-wrong"})
	refused(t, err, connect.CodeInvalidArgument, "key: lab does not accept the key")
	added, err := ada.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "lab", BaseUrl: "https://lab.example/v1", Key: "sk-ant-good-0001", Dialect: "responses"})
	must(t, err)
	if c := added.Check; !c.GetTried() || !strings.HasPrefix(c.GetSummary(), "lab accepts the key and lists 2 models. ") || !strings.HasSuffix(c.GetSummary(), "; none does yet.") || added.Endpoint.Dialect != "responses" {
		t.Errorf("it says %+v of %+v", c, added.Endpoint)
	}
	b.providers.Close()
	_, err = set("sk-ant-wrong-0003", false)
	refused(t, err, connect.CodeUnavailable, "Anthropic could not be tried: ")
	if res, err = set("sk-ant-wrong-0003", true); err != nil || res.Check.GetTried() || !strings.HasPrefix(res.Check.GetSummary(), "It was not tried: as you asked.") {
		t.Errorf("untried: %v, %v", res, err)
	}
	res, err = ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "DEPLOY_KEY", Value: []byte("anything")})
	if err != nil || res.Check != nil {
		t.Errorf("what is no key of models: %v, %v", res, err)
	}
	for _, wrong := range []string{"wrong-0002", "lab-wrong", "wrong-0003"} {
		if strings.Contains(b.logged.String(), wrong) {
			t.Errorf("the log has %s", wrong)
		}
	}
	// Members and bots cannot test keys.
	for name, caller := range map[string]person{"a member": b.cyd, "somebody else": b.bob} {
		asked := b.providers.Asked()
		if _, err := caller.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "ANTHROPIC_API_KEY", Value: []byte("sk-ant-any")}); err == nil || b.providers.Asked() != asked {
			t.Errorf("%s tries a key: %v", name, err)
		}
	}
}

func TestABotNamesAModelThatExists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	b.providers.Offer("", "gpt-5.1", "gpt-5.1-mini")
	_, err := ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: "OPENAI_API_KEY", Value: []byte("sk-any")})
	must(t, err)
	_, err = ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: "writer", Model: "openai/gpt-5.1-mni"})
	refused(t, err, connect.CodeInvalidArgument, `model: OpenAI has no model "gpt-5.1-mni" for this key`)
	if next := arbev1.ErrorInfoOf(err).GetNext(); !strings.HasPrefix(next, "use gpt-5.1-mini, gpt-5.1; to use it although it is not listed: ") {
		t.Errorf("next is %q", next)
	}
	_, err = ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: "writer", Model: "nobody/large"})
	refused(t, err, connect.CodeInvalidArgument, `model: there is no provider "nobody"`)
	made, err := ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: "writer", Model: "openai/gpt-6", SkipModelCheck: true})
	must(t, err)
	change := func(model string) (*arbev1.UpdateBotResponse, error) {
		return ada.Bots.UpdateBot(t.Context(), &arbev1.UpdateBotRequest{HouseId: house, Id: made.Bot.Id, Name: new("Writer"), Model: &model})
	}
	if _, err := change("openai/gpt-6"); err != nil {
		t.Errorf("what it has already: %v", err)
	}
	_, err = change("openai/gpt-7")
	refused(t, err, connect.CodeInvalidArgument, "has no model")
	if now, err := change("openai/gpt-5.1"); err != nil || now.UnverifiedModel != "" || now.Bot.Model != "openai/gpt-5.1" {
		t.Errorf("%v, %v", now, err)
	}
	if now, err := change("anthropic/claude-sonnet-4-6"); err != nil || !strings.Contains(now.UnverifiedModel, "no key for anthropic") {
		t.Errorf("without a key: %v, %v", now, err)
	}
}

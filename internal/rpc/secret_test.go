package rpc_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/sandbox"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestASecretSaysWhatUsesIt checks that whoever deletes a model's key learns which bots will fail without it.
func TestASecretSaysWhatUsesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	set := func(name, value string) {
		t.Helper()
		_, err := ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: name, Value: []byte(value)})
		must(t, err)
	}
	// uses returns the users of a secret, as the list and the refusal to delete the secret name them.
	uses := func(name string) string {
		t.Helper()
		res, err := ada.Secrets.ListSecrets(t.Context(), &arbev1.ListSecretsRequest{HouseId: house})
		must(t, err)
		var all []string
		for _, s := range res.Secrets {
			for _, u := range s.Uses {
				if s.Name == name {
					all = append(all, u.Kind+" "+u.Name)
				}
			}
		}
		used := strings.Join(all, ", ")
		if used != "" {
			_, err = ada.Secrets.DeleteSecret(t.Context(), &arbev1.DeleteSecretRequest{HouseId: house, Name: name})
			refused(t, err, connect.CodeFailedPrecondition, "the secret "+name+" is used by "+used)
		}
		return used
	}
	is := func(name, want string) {
		t.Helper()
		if got := uses(name); got != want {
			t.Errorf("%s is used by %q, want %q", name, got, want)
		}
	}
	set("OPENAI_API_KEY", "sk-openai-of-the-house")
	set("LAB_KEY", "sk-of-the-lab")
	_, err := ada.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "lab", BaseUrl: "https://models.example.com/v1", SecretName: "LAB_KEY"})
	must(t, err)

	followed, err := ada.Models.ListModels(t.Context(), &arbev1.ListModelsRequest{HouseId: house})
	must(t, err)
	is("OPENAI_API_KEY", "default model "+followed.DefaultModel+", bot @arbe")
	is("LAB_KEY", "model endpoint lab")
	for handle, model := range map[string]string{"reviewer": "lab/large", "writer": "openai/gpt-5", "critic": "anthropic/claude-sonnet-4-5"} {
		_, err := ada.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: handle, Model: model})
		must(t, err)
	}
	is("OPENAI_API_KEY", "default model "+followed.DefaultModel+", bot @arbe, bot @writer")
	is("LAB_KEY", "model endpoint lab, bot @reviewer")
	_, err = ada.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: house, Model: "lab/small"})
	must(t, err)
	is("OPENAI_API_KEY", "bot @writer")
	is("LAB_KEY", "model endpoint lab, default model lab/small, bot @arbe, bot @reviewer")
	set("ANTHROPIC_API_KEY", "sk-ant-of-the-house")
	is("ANTHROPIC_API_KEY", "bot @critic")
	_, err = ada.Secrets.DeleteSecret(t.Context(), &arbev1.DeleteSecretRequest{HouseId: house, Name: "ANTHROPIC_API_KEY", Force: true})
	must(t, err)
	is("ANTHROPIC_API_KEY", "")
}

// TestAnOwnerGivesAHouseItsOwnAccount checks that the key is tested, that it is never shown, and that no member can replace
// it, delete it or pass it on.
func TestAnOwnerGivesAHouseItsOwnAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, house := b.ada, b.ada.house.Id
	set := func(p person, key string) (*arbev1.SetSecretResponse, error) {
		return p.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house, Name: accountKey, Value: []byte(key)})
	}
	accounts := func() *arbev1.SandboxAccount {
		t.Helper()
		got, err := b.cyd.Sandboxes.ListSandboxAccounts(t.Context(), &arbev1.ListSandboxAccountsRequest{HouseId: house})
		must(t, err)
		if len(got.Accounts) != 1 {
			t.Fatalf("there are the accounts %v", got.Accounts)
		}
		return got.Accounts[0]
	}
	_, err := set(b.cyd, goodKey)
	refused(t, err, connect.CodePermissionDenied, "a key of a provider of sandboxes")
	_, err = set(ada, "wrong-key")
	refused(t, err, connect.CodeInvalidArgument, "does not accept the key")
	if a := accounts(); a.Set || !a.Operator || a.SecretName != accountKey || a.Driver != sandbox.DefaultDriver {
		t.Errorf("without a key the account is %v", a)
	}
	done, err := set(ada, goodKey)
	must(t, err)
	if !done.Check.GetTried() || !strings.Contains(done.Check.GetSummary(), "accepts the key") || strings.Contains(done.String(), goodKey) {
		t.Errorf("setting it answers %v", done)
	}

	thread, err := ada.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house})
	must(t, err)
	woken, err := ada.WakeSandbox(t.Context(), thread.Thread.Id, nil)
	must(t, err)
	got, err := ada.Sandboxes.GetSandbox(t.Context(), &arbev1.GetSandboxRequest{Id: woken.SandboxId})
	must(t, err)
	if !got.Sandbox.OwnAccount {
		t.Error("the sandbox is not in the house's account")
	}
	if a := accounts(); !a.Set || a.Sandboxes != 1 {
		t.Errorf("with a key the account is %v", a)
	}
	del := &arbev1.DeleteSecretRequest{HouseId: house, Name: accountKey}
	_, err = ada.Secrets.DeleteSecret(t.Context(), del)
	refused(t, err, connect.CodeFailedPrecondition, "is used by sandbox "+woken.SandboxId)
	del.Force = true
	_, err = b.cyd.Secrets.DeleteSecret(t.Context(), del)
	refused(t, err, connect.CodePermissionDenied, "a key of a provider of sandboxes")
	_, err = b.cyd.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "takes it", Config: &arbev1.EnvironmentConfig{
		Secrets: []*arbev1.SecretBinding{{Name: accountKey}},
	}})
	refused(t, err, connect.CodePermissionDenied, "a key of a provider of sandboxes")
	_, err = ada.Secrets.DeleteSecret(t.Context(), del)
	must(t, err)
	if a := accounts(); a.Set {
		t.Errorf("after the key was deleted the account is %v", a)
	}
}

package rpc_test

import (
	"strconv"
	"testing"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Lists, pages and terminals show names side by side, so no name may affect the text around it.
func TestNamesHaveNoInvisibleCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, ctx, house := b.ada, t.Context(), b.ada.house.Id
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	for rpc, call := range map[string]func(name string) error{
		"CreateHouse": func(name string) error {
			return errOf(ada.Houses.CreateHouse(ctx, &arbev1.CreateHouseRequest{Name: name}))
		},
		"UpdateHouse": func(name string) error {
			return errOf(ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Name: &name}))
		},
		"UpdateProfile": func(name string) error {
			return errOf(ada.Agents.UpdateProfile(ctx, &arbev1.UpdateProfileRequest{Name: name}))
		},
		"CreateInvite": func(name string) error {
			return errOf(ada.Houses.CreateInvite(ctx, &arbev1.CreateInviteRequest{HouseId: house, Note: name}))
		},
		"CreateAgent": func(name string) error {
			return errOf(ada.Agents.CreateAgent(ctx, &arbev1.CreateAgentRequest{HouseId: house, Name: name, Runtime: "pi"}))
		},
		"CreateAPIKey": func(name string) error {
			return errOf(ada.Credentials.CreateAPIKey(ctx, &arbev1.CreateAPIKeyRequest{HouseId: house, Name: name}))
		},
		"CreateBot": func(name string) error {
			return errOf(ada.Bots.CreateBot(ctx, &arbev1.CreateBotRequest{HouseId: house, Handle: "helper", Name: name}))
		},
		"CreateEnvironment": func(name string) error {
			return errOf(ada.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: house, Name: name}))
		},
		"CreateThread": func(name string) error {
			return errOf(ada.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, Name: name}))
		},
		"CreateThread with a tag": func(name string) error {
			return errOf(ada.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house, Tags: []string{name}}))
		},
		"UpdateThread": func(name string) error {
			return errOf(ada.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: th.Id, Name: &name}))
		},
		"ForkThread": func(name string) error {
			return errOf(ada.Threads.ForkThread(ctx, &arbev1.ForkThreadRequest{ThreadId: th.Id, Name: name}))
		},
		"CreateArtifact": func(name string) error {
			return errOf(ada.Artifacts.CreateArtifact(ctx, &arbev1.CreateArtifactRequest{
				Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: house}, Label: name, Content: []byte("x"),
			}))
		},
		"SetSecret": func(name string) error {
			return errOf(ada.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: house, Name: name, Value: []byte("a long enough value")}))
		},
		"SetModelEndpoint": func(name string) error {
			return errOf(ada.Models.SetModelEndpoint(ctx, &arbev1.SetModelEndpointRequest{HouseId: house, Name: name, BaseUrl: "https://models.example/v1"}))
		},
	} {
		t.Run(rpc, func(t *testing.T) {
			for _, name := range []string{"a\u202eb", "a\u2066b", "a\u200bb", "a\u2028b", "a\x1b[2Jb"} {
				if err := call(name); connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("%s: %v", strconv.QuoteToASCII(name), err)
				}
			}
		})
	}
}

// Names that are older than this rule are shown without the characters that it forbids.
func TestOlderNamesAreShownWithoutInvisibleCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{Name: "plain"})
	const older, want = "in\u202evoice\u200b\u2028 \U000e0041", "invoice "
	b.exec(t, "update threads set name = $2 where id = $1", th.Id, older)
	b.exec(t, "update agents set name = $2 where id = $1", b.cyd.id, older)
	b.exec(t, "update houses set name = $2 where id = $1", b.ada.house.Id, older)
	got, err := b.ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
	must(t, err)
	houses, err := b.ada.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	must(t, err)
	me, err := b.cyd.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
	must(t, err)
	for what, name := range map[string]string{"the thread": got.Thread.Name, "the house": houses.Houses[0].Name, "the person": me.Agent.Name} {
		if name != want {
			t.Errorf("%s is shown as %q", what, name)
		}
	}
}

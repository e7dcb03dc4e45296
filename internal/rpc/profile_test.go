package rpc_test

import (
	"testing"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAPersonNamesThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	b.exec(t, "update agents set unnamed = true where id = $1", ada.id)
	if who, err := ada.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}); err != nil || !who.Unnamed {
		t.Fatalf("before, they are %v: %v", who, err)
	}
	res, err := ada.Agents.UpdateProfile(t.Context(), &arbev1.UpdateProfileRequest{Name: "  Ada Lovelace "})
	must(t, err)
	if res.Agent.Name != "Ada Lovelace" || res.Agent.Id != ada.id {
		t.Errorf("it answers %v", res.Agent)
	}
	if who, err := ada.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}); err != nil || who.Unnamed || who.Agent.Name != "Ada Lovelace" {
		t.Errorf("after, they are %v: %v", who, err)
	}
	members, err := ada.Houses.ListMembers(t.Context(), &arbev1.ListMembersRequest{HouseId: ada.house.Id})
	must(t, err)
	if name := members.Members[0].Agent.Name; name != "Ada Lovelace" {
		t.Errorf("the house calls them %q", name)
	}
	for _, name := range []string{"", "   "} {
		refused(t, errOf(ada.Agents.UpdateProfile(t.Context(), &arbev1.UpdateProfileRequest{Name: name})), connect.CodeInvalidArgument)
	}
}

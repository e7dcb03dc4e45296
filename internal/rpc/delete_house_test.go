package rpc_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// lab is a house of Ada's that has something of most kinds. Cyd is a member of it.
func (b *bench) lab(t *testing.T) (ada, cyd person, key string) {
	t.Helper()
	ada, cyd = b.ada, b.cyd
	ada.house = b.newHouse(t, ada, "Lab")
	cyd.house = ada.house
	in := ada.house.Id
	b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", in, cyd.id)
	th := ada.thread(t, &arbev1.CreateThreadRequest{Name: "work"})
	ada.say(t, th.Id, "hello")
	ada.run(t, th.Id, "first")
	other := ada.thread(t, &arbev1.CreateThreadRequest{Name: "more", ParentThreadId: th.Id})
	cyd.run(t, other.Id, "second")
	must(t, errOf(ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: th.Id}, Label: "file", Content: []byte("bytes")})))
	must(t, errOf(ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: in}, Label: "more", Content: []byte("other bytes")})))
	must(t, errOf(ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: in, Name: "LAB", Value: []byte("a long enough value")})))
	must(t, errOf(ada.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: in, Name: "small"})))
	must(t, errOf(ada.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: in})))
	b.exec(t, "insert into spending (house_id, day, thread_id, charged_micros, calls) values ($1, (now() at time zone 'utc')::date, $2, 3000000, 1)", in, th.Id)
	return ada, cyd, cyd.houseKey(t)
}

func TestADeletedHouseLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, cyd, key := b.lab(t)
	in := ada.house.Id
	remove := func(p person, name string) error {
		return errOf(p.Houses.DeleteHouse(t.Context(), &arbev1.DeleteHouseRequest{Id: in, Name: name}))
	}
	refused(t, remove(cyd, "Lab"), connect.CodePermissionDenied)
	refused(t, remove(ada, "lab"), connect.CodeInvalidArgument, "not the name of the house")
	refs := ask[[]string](t, b, "select array_agg(provider_ref) from sandboxes where house_id = $1 and provider_ref is not null", in)
	if len(refs) != 2 {
		t.Fatalf("there are the boxes %v, want two", refs)
	}
	blobs := ask[[]string](t, b, "select array_agg(id) from blobs where house_id = $1", in)

	must(t, remove(ada, "Lab"))
	t.Run("nobody is in it any more, at once", func(t *testing.T) {
		for _, p := range []person{ada, cyd} {
			refused(t, errOf(p.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: in})), connect.CodeNotFound)
		}
		refused(t, errOf(b.client(key).Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: in})), connect.CodeUnauthenticated)
		list, err := ada.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
		must(t, err)
		if len(list.Houses) != 1 || list.Houses[0].Id == in {
			t.Errorf("Ada's houses are %v", list.Houses)
		}
		must(t, remove(ada, "Lab"))
	})
	eventually(t, "that the house is gone", func() bool {
		return ask[bool](t, b, "select not exists (select from houses where id = $1)", in)
	})
	t.Run("no table has a row of it", func(t *testing.T) {
		tables := ask[[]string](t, b, `select array_agg(distinct c.relname::text) from pg_class c join pg_attribute a on a.attrelid = c.oid
			where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attname = 'house_id' and not a.attisdropped`)
		if len(tables) < 30 {
			t.Fatalf("the catalog has only the tables %v", tables)
		}
		for _, table := range tables {
			if n := ask[int](t, b, "select count(*) from "+table+" where house_id = $1", in); n > 0 {
				t.Errorf("%d rows of it are in %s", n, table)
			}
		}
		eventually(t, "that no job of it is left to do", func() bool {
			return ask[int](t, b, "select count(*) from "+db.JobSchema+".river_job where args->>'house' = $1 and state <> 'completed'", in) == 0
		})
	})
	t.Run("its sandboxes are destroyed", func(t *testing.T) {
		for _, ref := range refs {
			if _, destroyed := b.provider.destroyed.Load(ref); !destroyed {
				t.Errorf("%s is left", ref)
			}
		}
	})
	t.Run("the bytes of its artifacts are due to be deleted", func(t *testing.T) {
		if n := ask[int](t, b, "select count(*) from blob_garbage where house_id_of_key = $1 and due_at <= now()", in); len(blobs) == 0 || n != len(blobs) {
			t.Errorf("%d of %d are", n, len(blobs))
		}
	})
	t.Run("other houses keep what they have", func(t *testing.T) {
		for _, p := range []person{b.ada, b.bob} {
			must(t, errOf(p.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: p.house.Id})))
		}
	})
	t.Run("the operator knows who deleted it", func(t *testing.T) {
		said := ask[string](t, b, "select name || ' by ' || deleted_by_name || ', of ' || belonged_to::text || ', ' || (emptied_at is not null)::text from deleted_houses where id = $1", in)
		if want := "Lab by Ada, of " + ada.id + ", true"; said != want {
			t.Errorf("they know: %s, want %s", said, want)
		}
		if !strings.Contains(b.logged.String(), "a house is deleted") {
			t.Errorf("the log is %s", b.logged.String())
		}
	})
	t.Run("what it spent today still counts for its owner", func(t *testing.T) {
		got, err := b.ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: b.ada.house.Id, Usage: true})
		must(t, err)
		if got.UsedToday.PersonUsd != 3 || got.UsedToday.Usd != 0 {
			t.Errorf("used today is %v, want $3 of the person and nothing of the house", got.UsedToday)
		}
		got, err = b.bob.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: b.bob.house.Id, Usage: true})
		must(t, err)
		if got.UsedToday.PersonUsd != 0 {
			t.Errorf("Bob's houses used %v", got.UsedToday)
		}
	})
}

// The owners of the first house are the operators of the installation, so that deleting it would make others operators.
func TestTheFirstHouseStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused(t, errOf(b.ada.Houses.DeleteHouse(t.Context(), &arbev1.DeleteHouseRequest{Id: b.ada.house.Id, Name: "Ada's"})), connect.CodeFailedPrecondition, "first house")
	must(t, errOf(b.ada.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: b.ada.house.Id})))
}

package rpc_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/retention"
	"github.com/arbe-dev/arbe/internal/rpc"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (p person) keep(t *testing.T, r *arbev1.HouseRetention) {
	t.Helper()
	res, err := p.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: p.house.Id, Retention: r})
	must(t, err)
	if got := res.House.Retention; !proto.Equal(got, r) {
		t.Fatalf("the house keeps %v, want %v", got, r)
	}
}

func (p person) newThread(t *testing.T, below string) string {
	t.Helper()
	res, err := p.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: p.house.Id, ParentThreadId: below})
	must(t, err)
	return res.Thread.Id
}

func (p person) wouldDelete(t *testing.T, as *arbev1.HouseRetention) *arbev1.RetentionPreview {
	t.Helper()
	res, err := p.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: p.house.Id, Preview: as})
	must(t, err)
	return res.Preview
}

func TestOldThreadsAreDeletedIfTheHouseWantsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	age := func(id string) {
		b.exec(t, "update threads set created_at = now() - interval '31 days', active_at = now() - interval '31 days' where id = $1", id)
	}
	old := ada.newThread(t, "")
	below := ada.newThread(t, old)
	kept := map[string]string{"the house's own thread": ada.house.PrimaryThreadId}
	for _, name := range []string{"one with activity below it", "a pinned one", "one in which something runs", "one that waits for approval", "one whose row is behind its log", "a fresh one"} {
		kept[name] = ada.newThread(t, "")
	}
	ada.newThread(t, kept["one with activity below it"])
	for name, id := range kept {
		if name != "a fresh one" {
			age(id)
		}
	}
	age(old)
	age(below)
	b.exec(t, "update threads set pinned_at = now() where id = $1", kept["a pinned one"])
	b.exec(t, "update threads set running_id = 'c1', running_since = now() where id = $1", kept["one in which something runs"])
	b.exec(t, "update threads set approvals = 1 where id = $1", kept["one that waits for approval"])

	must(t, b.dispatcher.Retention.Sweep(t.Context()))
	if _, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: old}); err != nil {
		t.Fatalf("by default, a thread is deleted: %v", err)
	}
	// What is said now is in the log at once, but in the row of its thread only after a moment.
	behind := kept["one whose row is behind its log"]
	_, err := ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: behind, Type: "chat", Payload: `{"text":"still here"}`})
	must(t, err)
	age(behind)
	found := ada.wouldDelete(t, &arbev1.HouseRetention{ThreadsDays: 30})
	if found.Threads < 2 || found.Threads > 3 || found.Artifacts != 0 { // the third is the one that is behind
		t.Errorf("the preview is %v, want two threads", found)
	}
	for days, want := range map[int32]int64{0: 0, 60: 0} {
		if found := ada.wouldDelete(t, &arbev1.HouseRetention{ThreadsDays: days}); found.Threads != want {
			t.Errorf("with %d days it would delete %v", days, found)
		}
	}
	for _, p := range []person{b.cyd, b.bob} {
		res, err := p.Houses.GetHouse(t.Context(), &arbev1.GetHouseRequest{Id: ada.house.Id, Preview: &arbev1.HouseRetention{ThreadsDays: 1}})
		if err == nil {
			t.Errorf("somebody who is no owner is shown %v", res)
		}
	}
	ada.keep(t, &arbev1.HouseRetention{ThreadsDays: 30}) // from now on, the server's own sweep may delete, too
	must(t, b.dispatcher.Retention.Sweep(t.Context()))

	for name, id := range kept {
		if _, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: id}); err != nil {
			t.Errorf("%s was deleted: %v", name, err)
		}
	}
	const why = "this thread was deleted by the house's retention after 30 days without activity"
	limited := b.client(ada.houseKey(t))
	for _, id := range []string{old, below} {
		for _, c := range []*arbev1.GetThreadRequest{{Id: id}} {
			_, err := ada.Threads.GetThread(t.Context(), c)
			_, byMember := b.cyd.Threads.GetThread(t.Context(), c)
			_, byKey := limited.Threads.GetThread(t.Context(), c)
			for _, err := range []error{err, byMember, byKey} {
				if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), why) || arbev1.ErrorInfoOf(err).Reason != string(fault.Expired) {
					t.Errorf("a thread of the house is answered with %v", err)
				}
			}
			if _, err := b.bob.Threads.GetThread(t.Context(), c); connect.CodeOf(err) != connect.CodeNotFound || strings.Contains(err.Error(), "retention") {
				t.Errorf("a stranger is told %v", err)
			}
		}
	}
	var deleted int
	for _, e := range ada.audit(t) {
		if e.SubjectKind == "thread" {
			deleted++
			if e.Via != "retention" || e.ActorName != "" || e.Action != "deleted" {
				t.Errorf("the event of a deleted thread is %v", e)
			}
		}
	}
	if deleted != 2 {
		t.Errorf("the audit log has %d deleted threads", deleted)
	}
	if !slices.ContainsFunc(ada.audit(t), func(e *arbev1.AuditEvent) bool {
		return event(e) == "changed house Ada's keep_threads_days=0→30" && e.ActorName == "Ada"
	}) {
		t.Error("the audit log does not have the change of the setting")
	}
}

func TestOldArtifactsAreDeletedIfTheHouseWantsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	thread := ada.newThread(t, "")
	made := func(label string, old bool) string {
		res, err := ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{
			Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}, Label: label, Content: []byte("of " + label),
		})
		must(t, err)
		if old {
			b.exec(t, "update artifacts set created_at = now() - interval '11 days' where id = $1", res.Artifact.Id)
		}
		return res.Artifact.Id
	}
	old, fresh, saved := made("old", true), made("fresh", false), made("files of a sandbox", true)
	environment := ask[string](t, b, "select id from environments where house_id = $1 limit 1", ada.house.Id)
	b.exec(t, "insert into sandboxes (id, house_id, environment_id, provider) values ('boxboxbox', $1, $2, 'local')", ada.house.Id, environment)
	b.exec(t, `insert into sandbox_trees (sandbox_id, house_id, saved) values ('boxboxbox', $1, jsonb_build_array(jsonb_build_object('folder', '.', 'artifact', $2::text)))`, ada.house.Id, saved)

	found := ada.wouldDelete(t, &arbev1.HouseRetention{ThreadsDays: 30, ArtifactsDays: 10})
	if found.Threads != 0 || found.Artifacts != 1 || found.ArtifactBytes != int64(len("of old")) {
		t.Errorf("the preview is %v, want one artifact", found)
	}
	ada.keep(t, &arbev1.HouseRetention{ThreadsDays: 30, ArtifactsDays: 10})
	must(t, b.dispatcher.Retention.Sweep(t.Context()))
	for _, id := range []string{fresh, saved} {
		if _, err := ada.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: id}); err != nil {
			t.Errorf("an artifact to keep was deleted: %v", err)
		}
	}
	const why = "this artifact was deleted by the house's retention after 10 days"
	if _, err := b.cyd.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: old}); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), why) {
		t.Errorf("the old one is answered with %v", err)
	}
	if _, err := b.bob.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: old}); connect.CodeOf(err) != connect.CodeNotFound || strings.Contains(err.Error(), "retention") {
		t.Errorf("a stranger is told %v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+rpc.ArtifactPath+old, nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+ada.key)
	res, err := http.DefaultClient.Do(r)
	must(t, err)
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusNotFound || !strings.Contains(string(text), why) {
		t.Errorf("its bytes are answered with %d: %s %v", res.StatusCode, text, err)
	}
}

// A link to something that was deleted says why for more than a year. Then its mark is deleted, so that marks do not accumulate.
func TestMarksOfWhatRetentionDeletedEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	days := int(retention.MarksKept.Hours() / 24)
	for id, age := range map[string]int{"tooold": days + 1, "stillold": days - 1} {
		b.exec(t, "insert into expired (kind, id, house_id, days, at) values ('thread', $1, $2, 30, now() - make_interval(days => $3))", id, ada.house.Id, age)
	}
	b.exec(t, "insert into expired (kind, id, house_id, days, at) select 'artifact', 'many' || n, $1, 30, now() - make_interval(days => $2) from generate_series(1, 2500) n", ada.house.Id, days+2)
	must(t, b.dispatcher.Retention.Sweep(t.Context())) // although no house has a retention now
	if left := ask[[]string](t, b, "select array_agg(id) from expired where house_id = $1", ada.house.Id); !slices.Equal(left, []string{"stillold"}) {
		t.Errorf("these marks are left: %d, %.200v", len(left), left)
	}
	for id, says := range map[string]bool{"tooold": false, "stillold": true} {
		_, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: id})
		if connect.CodeOf(err) != connect.CodeNotFound || strings.Contains(err.Error(), "retention") != says {
			t.Errorf("a link to %s is answered with %v", id, err)
		}
	}
}

func TestTheOldestThreadsAreDeletedIfAllAreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	// sized creates a thread of one MiB that was last active this many days ago.
	sized := func(days int, below string) string {
		id := ada.newThread(t, below)
		b.exec(t, "update threads set created_at = now() - make_interval(days => $2), active_at = now() - make_interval(days => $2) where id = $1", id, days)
		b.exec(t, `insert into log_sizes (stream_id, house_id, upto, entries, bytes) select s.id, s.house_id, 1, 1, 1 << 20 from streams s join threads t on t.stream_id = s.name
			where t.id = $1 on conflict (stream_id) do update set bytes = excluded.bytes`, id)
		return id
	}
	oldest, pinned, tree, newer, now := sized(9, ""), sized(8, ""), sized(5, ""), sized(2, ""), sized(0, "")
	below := sized(7, tree)
	b.exec(t, "update threads set pinned_at = now() where id = $1", pinned)
	gone := func() (ids []string) {
		for _, id := range []string{oldest, pinned, tree, below, newer, now} {
			if _, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: id}); err != nil {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for _, c := range []struct {
		mb   int32
		want []string
	}{
		{7, nil},
		{5, []string{oldest}},
		{4, []string{oldest, tree, below}}, // a tree counts and is deleted as a whole, by what happened last in it
		{1, []string{oldest, tree, below, newer}},
	} {
		left := len(c.want) - len(gone())
		if found := ada.wouldDelete(t, &arbev1.HouseRetention{ThreadsMb: c.mb}); found.Threads != int64(left) || found.Artifacts != 0 {
			t.Errorf("with %d MiB it would delete %v", c.mb, found)
		}
		ada.keep(t, &arbev1.HouseRetention{ThreadsMb: c.mb})
		must(t, b.dispatcher.Retention.Sweep(t.Context()))
		if got := gone(); !slices.Equal(got, c.want) {
			t.Errorf("with %d MiB it deleted %v, want %v", c.mb, got, c.want)
		}
	}
	_, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: below})
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "because it was among the oldest, and all threads together were too large") {
		t.Errorf("a thread that was deleted is answered with %v", err)
	}
	var deleted int
	for _, e := range ada.audit(t) {
		if e.SubjectKind == "thread" && e.Via == "retention" && e.Action == "deleted" {
			deleted++
		}
	}
	if deleted != 4 {
		t.Errorf("the audit log has %d deleted threads", deleted)
	}
	if !slices.ContainsFunc(ada.audit(t), func(e *arbev1.AuditEvent) bool {
		return event(e) == "changed house Ada's keep_threads_mb=7→5" && e.ActorName == "Ada"
	}) {
		t.Error("the audit log does not have the change of the setting")
	}
}

func TestTheOldestArtifactsAreDeletedIfAllAreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	thread := ada.newThread(t, "")
	made := func(label string, days int) string {
		res, err := ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{
			Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}, Label: label, Content: []byte(label + strings.Repeat("x", 700_000)),
		})
		must(t, err)
		b.exec(t, "update artifacts set created_at = now() - make_interval(days => $2) where id = $1", res.Artifact.Id, days)
		return res.Artifact.Id
	}
	oldest, older, saved, fresh := made("oldest", 9), made("older", 8), made("files of a sandbox", 10), made("fresh", 0)
	environment := ask[string](t, b, "select id from environments where house_id = $1 limit 1", ada.house.Id)
	b.exec(t, "insert into sandboxes (id, house_id, environment_id, provider) values ('boxboxbox', $1, $2, 'local')", ada.house.Id, environment)
	b.exec(t, `insert into sandbox_trees (sandbox_id, house_id, saved) values ('boxboxbox', $1, jsonb_build_array(jsonb_build_object('folder', '.', 'artifact', $2::text)))`, ada.house.Id, saved)

	ada.keep(t, &arbev1.HouseRetention{ArtifactsMb: 2})
	if found := ada.wouldDelete(t, &arbev1.HouseRetention{ArtifactsMb: 2}); found.Artifacts != 2 || found.ArtifactBytes < 1_400_000 {
		t.Errorf("the preview is %v, want two artifacts", found)
	}
	must(t, b.dispatcher.Retention.Sweep(t.Context()))
	for id, stays := range map[string]bool{oldest: false, older: false, saved: true, fresh: true} {
		_, err := ada.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: id})
		if (err == nil) != stays || err != nil && !strings.Contains(err.Error(), "all artifacts together were too large") {
			t.Errorf("the artifact %s is answered with %v", id, err)
		}
	}
}

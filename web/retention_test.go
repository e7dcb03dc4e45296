package web_test

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestARetentionIsSetKnowingWhatItDeletes(t *testing.T) {
	t.Parallel()
	f := newFake()
	in := ada(t, f)
	const page = "/houses/home/retention"
	days := func() (threads, artifacts int32) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.house.Retention.GetThreadsDays(), f.house.Retention.GetArtifactsDays()
	}
	set := func(threads, artifacts, sure string, status int) string {
		t.Helper()
		res, text := in.post(page, url.Values{"threads_days": {threads}, "artifacts_days": {artifacts}, "sure": {sure}})
		if res.StatusCode != status {
			t.Errorf("setting %s and %s is answered with %d", threads, artifacts, res.StatusCode)
		}
		return text
	}

	set("90", "", "", http.StatusSeeOther) // nothing is as old
	if threads, artifacts := days(); threads != 90 || artifacts != 0 {
		t.Errorf("the house keeps threads for %d days and artifacts for %d", threads, artifacts)
	}
	f.mu.Lock()
	f.old = 12
	f.mu.Unlock()
	text := set("30", "7", "", http.StatusOK)
	contains(t, text, "This deletes 12 threads and 12 artifacts (11.7 KiB) within an hour, for good.", `value="30"`, `value="7"`, "Save and delete them")
	if threads, _ := days(); threads != 90 {
		t.Error("it was set without asking")
	}
	set("30", "7", "true", http.StatusSeeOther)
	if threads, artifacts := days(); threads != 30 || artifacts != 7 {
		t.Errorf("the house keeps threads for %d days and artifacts for %d", threads, artifacts)
	}
	contains(t, set("soon", "7", "true", http.StatusBadRequest), "This is not a whole number.", `value="soon"`)
	res, _ := in.post(page, url.Values{"threads_days": {"30"}, "artifacts_days": {"7"}, "threads_mb": {"500"}, "artifacts_mb": {"2000"}, "sure": {"true"}})
	f.mu.Lock()
	if now := f.house.Retention; res.StatusCode != http.StatusSeeOther || now.ThreadsMb != 500 || now.ArtifactsMb != 2000 {
		t.Errorf("with sizes it is answered with %d, and the house keeps %v", res.StatusCode, now)
	}
	f.mu.Unlock()
	_, text = in.get(page)
	contains(t, text, `value="500"`, `value="2000"`, `value="30"`, `value="7"`, "Its logs have 1,234 entries and 3.0 MiB of 20.0 GiB.")
	lacks(t, text, "Save and delete them")
}

func TestAFileSaysThatTheRetentionDeletedIt(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("gonegone", "Gone")
	f.says("gonegone", f.me.Id, "e1", entry.Chat{Text: "look", Attachments: []entry.Attachment{{ArtifactID: "a1", Name: "plan.pdf", Size: 5}}})
	in := ada(t, f)
	err := connect.NewError(connect.CodeNotFound, errors.New("it was deleted"))
	detail, failed := connect.NewErrorDetail(&arbev1.ErrorInfo{Reason: string(fault.Expired)})
	if failed != nil {
		t.Fatal(failed)
	}
	err.AddDetail(detail)
	f.mu.Lock()
	f.broken["GetArtifact"] = err
	f.mu.Unlock()
	_, page := in.get("/threads/gonegone")
	contains(t, page, "plan.pdf was deleted by the retention of the house")
}

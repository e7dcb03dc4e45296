package web_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The list is filtered by links, which work without a script. The sidebar shows all threads meanwhile.
func TestTheListIsFilteredByState(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("openopen", "Open")
	f.thread("shutshut", "Shut").Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED
	f.thread("failfail", "Fails").Status = arbev1.ThreadStatus_THREAD_STATUS_FAILED
	f.needs("openopen", "Open", arbev1.NeedReason_NEED_REASON_MENTION)
	in := ada(t, f)
	_, page := in.get("/houses/home")
	contains(t, page, `href="/houses/home?is=failed"`, `id="t-openopen"`, `id="t-shutshut"`, `id="need-openopen"`)
	for only, want := range map[string]struct{ there, missing []string }{
		"failed":  {[]string{`id="t-failfail"`, `aria-current>Failed`}, []string{`id="t-openopen"`, `id="t-shutshut"`, `id="need-openopen"`, " list/home/"}},
		"closed":  {[]string{`id="t-shutshut"`}, []string{`id="t-openopen"`, `id="t-failfail"`}},
		"needs":   {[]string{`id="need-openopen"`}, []string{`id="t-openopen"`, `id="t-shutshut"`}},
		"unknown": {[]string{`id="t-openopen"`, `aria-current>All`}, nil},
	} {
		_, page := in.get("/houses/home?is=" + only)
		contains(t, page, append(want.there, `id="place-openopen"`, `id="place-shutshut"`, `id="place-failfail"`)...)
		lacks(t, page, want.missing...)
	}
	for i := range 110 {
		f.thread(fmt.Sprintf("closed%04d", i), "Closed").Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED
	}
	_, page = in.get("/houses/home?is=closed")
	contains(t, page, `href="/houses/home?is=closed&amp;page=100"`)
	_, page = in.get("/houses/home?is=closed&page=100")
	contains(t, page, `id="t-shutshut"`, `href="/houses/home?is=closed"`)
	lacks(t, page, `id="t-openopen"`)
}

// What runs is filtered live: a thread appears when something begins in it, and goes when that ends.
func TestTheListOfWhatRunsIsLive(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("restrest", "Rest")
	f.thread("workwork", "Works")
	b := newTab(t, f.start(t))
	b.open("/houses/home?is=running")
	b.untilLive()
	shown := func(ids string) string {
		return "[...document.querySelectorAll('#threads .thread-item')].filter(e => e.checkVisibility()).map(e => e.id).join(' ') === '" + ids + "' && document.querySelector('.no-thread').checkVisibility() === " + fmt.Sprint(ids == "")
	}
	b.until("an empty list", shown(""))
	f.update("workwork", func(t *arbev1.Thread) {
		t.Running = &arbev1.Running{TurnId: "t1", AgentName: "Bee", Since: timestamppb.Now()}
	})
	b.until("what runs", shown("t-workwork"))
	b.pictures("running")
	f.update("workwork", func(t *arbev1.Thread) { t.Running = nil })
	b.until("an empty list", shown(""))
}

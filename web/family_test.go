package web_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// delegates adds a child of a thread that Bee drives, in the state that change gives it.
func (f *fake) delegates(parent, child, task string, change func(*arbev1.Thread)) {
	t := f.thread(child, task)
	f.update(child, func(*arbev1.Thread) {
		t.ParentThreadId, t.AgentId, t.Status = parent, bee, arbev1.ThreadStatus_THREAD_STATUS_IDLE
		if change != nil {
			change(t)
		}
	})
	f.says(parent, f.me.Id, "", entry.AgentSpawn{ChildThreadID: child, AgentID: bee, Runtime: "pi", Task: task})
}

// running puts a thread into the state of a child whose agent is working.
func running(t *arbev1.Thread) {
	since := timestamppb.New(time.Now().Add(-90 * time.Second))
	t.Status, t.Running = arbev1.ThreadStatus_THREAD_STATUS_RUNNING, &arbev1.Running{RunEpoch: 1, AgentId: bee, Since: since}
	t.LastRun = &arbev1.LastRun{Epoch: 1, StartedAt: since, Doing: "thinking", LastTool: "bash", CostMicros: 42_000}
}

func failed(t *arbev1.Thread) {
	began := time.Now().Add(-time.Hour)
	t.Status, t.LastRun = arbev1.ThreadStatus_THREAD_STATUS_FAILED, &arbev1.LastRun{
		Epoch: 1, StartedAt: timestamppb.New(began), FinishedAt: timestamppb.New(began.Add(4 * time.Minute)), Result: "the model is overloaded <script>alert(1)</script>",
	}
}

// state returns the content of a child's card, as HTML.
func state(t *testing.T, page, child string) string {
	t.Helper()
	_, after, ok := strings.Cut(page, `id="child-`+child+`"`)
	if !ok {
		t.Fatalf("there is no card of %s", child)
	}
	card, _, _ := strings.Cut(after, "</article>")
	if len(card) > 4<<10 {
		t.Errorf("the card of %s has %d bytes", child, len(card))
	}
	return card
}

// Where a task was delegated, a card shows the state of its thread: what it is doing, since when, its cost, its outcome, and
// what can be done. The details list the children.
func TestATaskIsACardInItsParent(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	parent := f.thread("parent001", "Parent")
	f.delegates("parent001", "child0001", "Wait for me", nil)
	f.delegates("parent001", "child0002", "Fix the <b>failing</b> test", running)
	f.delegates("parent001", "child0003", strings.Repeat("A very long task. ", 1000), failed)
	f.delegates("parent001", "child0004", "Ask me", func(t *arbev1.Thread) { running(t); t.OpenApprovals = 1 })
	f.delegates("parent001", "child0005", "Deleted", nil)
	f.delete("child0005")
	f.says("parent001", f.me.Id, "", entry.AgentSpawn{ChildThreadID: "../../elsewhere", AgentID: bee, Runtime: "pi", Task: "of nothing"})
	c := ada(t, f)
	_, page := c.get("/threads/parent001")
	harmless(t, page)
	contains(t, page, `<a class="child-open" href="/threads/child0002"`, "Fix the &lt;b&gt;failing&lt;/b&gt; test")
	contains(t, state(t, page, "child0001"), "getting ready")
	contains(t, state(t, page, "child0002"), `class="status running"`, "thinking", `class="elapsed"`, "last tool bash · $0.04", "/threads/child0002/stop")
	contains(t, state(t, page, "child0003"), `class="status failed"`, "4m 0s", "the model is overloaded &lt;script&gt;", "/threads/child0003/run/continue")
	contains(t, state(t, page, "child0004"), `class="status waiting"`, "waits for approval")
	contains(t, state(t, page, "child0005"), "Its thread was deleted.")
	lacks(t, page, `href="/threads/child0005"`, "elsewhere")
	if listed := regexp.MustCompile(`id="kid-(child\d+)"`).FindAllStringSubmatch(page, -1); len(listed) != 4 || listed[0][1] != "child0004" || listed[1][1] != "child0002" {
		t.Errorf("the details list %v", listed)
	}
	if n := f.called["GetThread"]; n > 6 {
		t.Errorf("the page asked for %d threads", n)
	}

	f.fork("fork00001", parent, 3)
	_, page = c.get("/threads/fork00001")
	contains(t, state(t, page, "child0002"), "thinking")
	lacks(t, page, "child-state running own", `id="kid-child0002"`)
}

// The cards of an open page follow the rows of the children: their activity, their end, and their deletion.
func TestACardFollowsItsThread(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.thread("parent002", "Parent")
	f.delegates("parent002", "child0011", "First", running)
	b := newTab(t, f.start(t))
	b.open("/threads/parent002")
	b.untilLive()
	card := func(child string) string { return "document.querySelector('#child-" + child + "')?.innerText" }
	f.update("child0011", func(t *arbev1.Thread) { t.LastRun.Doing, t.LastRun.CostMicros = "running edit", 1_500_000 })
	b.until("what it does", card("child0011")+".includes('running edit') && "+card("child0011")+".includes('$1.50')")
	f.delegates("parent002", "child0012", "Second", nil)
	b.until("another one, in the log and the details", card("child0012")+"?.includes('getting ready') && !!document.querySelector('#kid-child0012')")
	f.update("child0011", func(t *arbev1.Thread) {
		t.Status, t.Running = arbev1.ThreadStatus_THREAD_STATUS_COMPLETED, nil
		t.LastRun.FinishedAt, t.LastRun.Result = timestamppb.Now(), "All is well."
	})
	b.until("its end", card("child0011")+".includes('All is well.') && !!document.querySelector('#child-child0011 form[action$=continue]') && !document.querySelector('#child-child0011 .elapsed')")
	f.delete("child0012")
	b.until("that it is gone", card("child0012")+" === 'Its thread was deleted.' && !document.querySelector('#kid-child0012')")
	b.open("/houses/home")
	b.untilLive()
	b.until("the child under its parent", "document.querySelector('#t-parent002 + #t-child0011.child') !== null && document.querySelector('#place-parent002 + #place-child0011.child') !== null")
}

// If a thread has many children, a list shows those that work or wait and a few others, and one line leads to the rest. A
// tree is placed where its latest thread would be.
func TestManyChildrenAreFolded(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.now = time.Now().Add(-time.Hour)
	add := func(id, parent string, change func(*arbev1.Thread)) {
		f.now = f.now.Add(time.Second)
		th := f.thread(id, id)
		if th.ParentThreadId = parent; parent != "" {
			th.AgentId, th.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_COMPLETED
		}
		if change != nil {
			change(th)
		}
	}
	for i := range 200 {
		add(fmt.Sprintf("other%03d", i), "", nil)
	}
	add("busyparent", "", nil)
	for i := range 40 {
		add(fmt.Sprintf("kid%02d", i), "busyparent", nil)
	}
	add("worker1", "kid07", running)
	add("worker2", "busyparent", running)
	add("latest", "", nil)
	add("few", "", nil)
	for i := range 4 {
		add(fmt.Sprint("of few ", i), "few", nil)
	}
	_, page := ada(t, f).get("/houses/home")
	var got []string
	for _, m := range regexp.MustCompile(`<li id="t-([\w -]+)" class="thread-item( child deeper| child)?[ "]`).FindAllStringSubmatch(page, -1) {
		got = append(got, m[1]+m[2])
	}
	const want = "few, of few 3 child, of few 2 child, of few 1 child, of few 0 child, latest, " +
		"busyparent, worker2 child, kid39 child, kid38 child, kid07 child, worker1 child deeper, more-busyparent child, other199"
	if s := strings.Join(got, ", "); !strings.HasPrefix(s, want) {
		t.Errorf("the list is %s", s)
	}
	contains(t, page, `<a class="thread-link folded" href="/threads/busyparent#kids">37 more children</a>`)
}

// Threads whose parents form a circle, which the database does not allow, are listed once each.
func TestParentsInACircleAreListed(t *testing.T) {
	t.Parallel()
	f := newFake()
	for child, parent := range map[string]string{"circle01": "circle02", "circle02": "circle01", "circle03": "circle03", "circle04": "circle01"} {
		f.thread(child, "Thread "+child)
		f.update(child, func(t *arbev1.Thread) { t.ParentThreadId = parent })
	}
	_, page := ada(t, f).get("/houses/home")
	for n := range 4 {
		if id := fmt.Sprintf(`id="t-circle0%d"`, n+1); strings.Count(page, id) != 1 {
			t.Errorf("%s is there %d times", id, strings.Count(page, id))
		}
	}
}

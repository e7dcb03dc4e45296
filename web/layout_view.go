package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// ownPages are the pages of a reader, which belong to no house.
var ownPages = []struct{ Path, Title, Icon string }{
	{"/profile", "Your profile", "person"}, {"/notifications", "Notifications", "bell"}, {"/sessions", "Where you are logged in", "device"},
}

// layout is the frame of every page.
type layout struct {
	Theme, Path string
	Me          *arbev1.Agent
	// Unnamed reports that the reader's name is made up.
	Unnamed bool
	Houses  []*arbev1.House
	House   *arbev1.House
	Threads []*arbev1.Thread
	// Only is the filter of the list of threads.
	Only filter
	// Page is the token of this page of threads, empty for the first one. Next is the token of the next page, empty on the
	// last one.
	Page, Next string
	// Newer are the tokens of the pages before this one, nearest first, if the address has them. First has the threads of the
	// first page for the sidebar, if Threads are from another page.
	Newer []string
	First []*arbev1.Thread
	// Also are topics that the page shows besides the sidebar.
	Also []topic
	// Current is the id of the open thread; empty on the house's own page.
	Current string
	// Inbox is the reader's inbox: threads that need them, and unread ones.
	Inbox *arbev1.Inbox
}

// maxNewer limits the number of tokens in Newer, because they are part of the address.
const maxNewer = 20

// placesOf returns the layout for the sidebar, which shows the first page of threads on every page.
func (f layout) placesOf() layout {
	if f.isPart() {
		f.Threads = f.First
	}
	return f
}

// olderPage and newerPage return the links to the neighbouring pages of threads.
func (f layout) olderPage() string {
	q := f.Only.query()
	q.Set("page", f.Next)
	if f.Page != "" {
		q["newer"] = append([]string{f.Page}, f.Newer...)[:min(len(f.Newer)+1, maxNewer)]
	}
	return housePath(f.House.Id) + "?" + q.Encode()
}

func (f layout) newerPage() string {
	q := f.Only.query()
	if len(f.Newer) == 0 {
		return withQuery(housePath(f.House.Id), q)
	}
	q["page"] = f.Newer[:1]
	if len(f.Newer) > 1 {
		q["newer"] = f.Newer[1:]
	}
	return withQuery(housePath(f.House.Id), q)
}

// listedThread is a thread in a list. Depth is the number of ancestors that it is nested under. At depth 0, Parent is its
// parent, if the list has the parent too. If Folded is not 0, the line stands for that many other children of the thread.
type listedThread struct {
	*arbev1.Thread
	Depth  int
	Parent *arbev1.Thread
	Folded int
}

// key returns the part of a line's ids that differs from line to line.
func (t listedThread) key() string {
	if t.Folded > 0 {
		return "more-" + t.Id
	}
	return t.Id
}

// pinned returns the pinned threads of the house, and recent the others. Children directly follow their parent if both are
// returned: those that work or wait, then those that failed, then others, of which only some are listed.
func (f layout) pinned() []listedThread { return nested(f.Threads, true) }

func (f layout) recent() []listedThread { return nested(f.Threads, false) }

// openChildren is the number of children listed under a thread, unless more of them work or wait.
const openChildren = 3

func nested(all []*arbev1.Thread, pinned bool) []listedThread {
	l := lines{byID: map[string]*arbev1.Thread{}, children: map[string][]*arbev1.Thread{}}
	for _, t := range all {
		l.byID[t.Id] = t
	}
	within := func(t *arbev1.Thread) bool { return (t.PinnedAt != nil) == pinned }
	above := func(t *arbev1.Thread) *arbev1.Thread {
		if parent := l.byID[t.ParentThreadId]; parent != nil && within(parent) {
			return parent
		}
		return nil
	}
	// rootOf returns the top of a thread's tree, or nil if its parents form a circle.
	rootOf := func(t *arbev1.Thread) *arbev1.Thread {
		for range all {
			parent := above(t)
			if parent == nil {
				return t
			}
			t = parent
		}
		return nil
	}
	var top []*arbev1.Thread
	placed := map[string]bool{}
	for _, t := range all {
		if !within(t) {
			continue
		}
		root := rootOf(t)
		if root == nil {
			root = t
		} else if parent := above(t); parent != nil {
			l.children[parent.Id] = append(l.children[parent.Id], t)
		}
		// A tree is placed where its latest thread would be.
		if !placed[root.Id] {
			placed[root.Id] = true
			top = append(top, root)
		}
	}
	for _, t := range top {
		l.add(t, 0)
	}
	return l.lines
}

// lines holds the lines of a list, and the threads that they are made from.
type lines struct {
	byID     map[string]*arbev1.Thread
	children map[string][]*arbev1.Thread
	lines    []listedThread
}

// add adds a thread and its children.
func (l *lines) add(t *arbev1.Thread, depth int) {
	one := listedThread{Thread: t, Depth: depth}
	if depth == 0 {
		one.Parent = l.byID[t.ParentThreadId]
	}
	l.lines = append(l.lines, one)
	shown, folded := 0, 0
	children := slices.Clone(l.children[t.Id])
	slices.SortStableFunc(children, func(a, b *arbev1.Thread) int { return cmp.Compare(calm(a), calm(b)) })
	for _, c := range children {
		if len(children) > openChildren+1 && shown >= openChildren && !l.busy(c) {
			folded++
			continue
		}
		shown++
		l.add(c, depth+1)
	}
	if folded > 0 {
		l.lines = append(l.lines, listedThread{Thread: t, Depth: depth + 1, Folded: folded})
	}
}

// busy reports whether a thread, or one below it, works or waits.
func (l *lines) busy(t *arbev1.Thread) bool {
	return calm(t) == 0 || slices.ContainsFunc(l.children[t.Id], l.busy)
}

// foldedWords returns the text that stands for children that are not listed.
func foldedWords(t listedThread) string {
	if t.Folded == 1 {
		return "1 more child"
	}
	return grouped(t.Folded) + " more children"
}

// status is a thread's status as a page shows it: a class, which has a shape and a colour, and a word.
type status struct{ Class, Word string }

// stateOf returns what a thread is doing now. It waits while a bot asks for approval, and it is running while a command runs
// or a bot works in it, even if the status in its row is "open".
func stateOf(t *arbev1.Thread) status {
	switch {
	case t.OpenApprovals > 0:
		return status{Class: "waiting", Word: "waits for approval"}
	case t.Running.GetTurnId() != "":
		return status{Class: "running", Word: cmp.Or(clip(t.Running.AgentName, 40), "a bot") + " at work"}
	case t.Running != nil:
		return statusOf("running")
	}
	return statusOf(arbev1.Word(t.Status))
}

// statusOf returns how a status is shown. An unknown status looks idle and keeps its own word.
func statusOf(s string) status {
	switch s {
	case "idle", "running", "waiting", "completed", "failed", "cancelled", "open", "closed":
		return status{Class: s, Word: s}
	}
	return status{Class: "idle", Word: s}
}

// title returns a thread's name, or "Untitled".
func title(t *arbev1.Thread) string {
	if name := strings.TrimSpace(t.Name); name != "" {
		return name
	}
	return "Untitled"
}

// windowTitle is the title of a thread's window. The status comes first, because that is what readers look for
// in a row of tabs. It is left out if the thread is just open.
func windowTitle(t *arbev1.Thread, house string) string {
	s := title(t) + " · " + house
	switch state := stateOf(t); state.Class {
	case "open":
		return s
	case "running":
		return "● running · " + s
	default:
		return state.Word + " · " + s
	}
}

// houseTitle is the title of a house's window, with the numbers of threads in its list that wait for approval or are running.
// The script updates it.
func houseTitle(f layout) string {
	states := map[string]int{}
	for _, t := range f.Threads {
		states[stateOf(t).Class]++
	}
	title := f.House.Name + " · arbe"
	if n := states["running"]; n > 0 {
		title = "● " + decimal(n) + " running · " + title
	}
	if n := states["waiting"]; n > 0 {
		title = "◕ " + decimal(n) + " waiting · " + title
	}
	return title
}

const (
	// pageOfThreads is the number of threads in the sidebar and on a page of a house's list.
	pageOfThreads = 100
	// maxPatches limits the patches of a listing that are sent. After more changes, the whole listing is sent.
	maxPatches = 40
)

// digest identifies the state of the threads that a page shows.
func (f layout) digest() string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(f.Next)) // a hash never fails
	for _, t := range f.Threads {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
		if err != nil {
			return "" // matches no digest, so that the whole list is sent
		}
		_, _ = sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

func houseTopic(f layout) topic { return topic{"house", f.House.Id, f.digest()} }

func listTopic(f layout) topic { return topic{"list", f.House.Id, f.digest()} }

// inSettings is the value of [layout].Current on a page of the settings.
const inSettings = "settings"

// isOwner reports whether the reader is an owner of the house.
func (f layout) isOwner() bool { return f.House.Role == "owner" }

// isUnused reports whether nothing was said in the house. A new house has one thread, in which nothing was said.
func (f layout) isUnused() bool {
	return f.Page == "" && f.Only == "" && len(f.Threads) <= 1 && !slices.ContainsFunc(f.Threads, func(t *arbev1.Thread) bool { return t.LastSaid != nil })
}

// calm returns 0 for a thread that works or waits, 1 for a failed one, and 2 for any other.
func calm(t *arbev1.Thread) int {
	switch stateOf(t).Class {
	case "running", "waiting", "idle":
		return 0
	case "failed":
		return 1
	}
	return 2
}

// isPart reports whether the page lists other threads than the first ones of the house. Such a list is not live.
func (f layout) isPart() bool { return f.Page != "" || f.Only.status() != 0 }

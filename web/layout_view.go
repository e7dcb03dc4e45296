package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"google.golang.org/protobuf/proto"
)

// layout is what every page of a house has around it.
type layout struct {
	Theme, Path string
	Me          *arbev1.Agent
	Houses      []*arbev1.House
	House       *arbev1.House
	Threads     []*arbev1.Thread
	// Page is the token of this page of threads, empty for the first one. Next is the token of the next page, empty on the
	// last one.
	Page, Next string
	// Newer are the tokens of the pages before this one, the nearest first, as far as the address has them. First has the
	// threads of the first page, for the places, if Threads are those of another page.
	Newer []string
	First []*arbev1.Thread
	// Also are topics that the page shows besides the places.
	Also []topic
	// Current is the id of the open thread; empty on the house's own page.
	Current string
}

// maxNewer limits the number of tokens in Newer, because they are part of the address.
const maxNewer = 20

// placesOf returns the layout for the places, which show the first page of threads on every page.
func (f layout) placesOf() layout {
	if f.Page != "" {
		f.Threads = f.First
	}
	return f
}

// olderPage and newerPage lead to the pages of threads beside this one.
func (f layout) olderPage() string {
	q := url.Values{"page": {f.Next}}
	if f.Page != "" {
		q["newer"] = append([]string{f.Page}, f.Newer...)[:min(len(f.Newer)+1, maxNewer)]
	}
	return housePath(f.House.Id) + "?" + q.Encode()
}

func (f layout) newerPage() string {
	if len(f.Newer) == 0 {
		return housePath(f.House.Id)
	}
	q := url.Values{"page": f.Newer[:1]}
	if len(f.Newer) > 1 {
		q["newer"] = f.Newer[1:]
	}
	return housePath(f.House.Id) + "?" + q.Encode()
}

// listedThread is a thread in a list. Child reports that it is listed under its parent. Otherwise Parent is its parent, if
// that is in the list too.
type listedThread struct {
	*arbev1.Thread
	Child  bool
	Parent *arbev1.Thread
}

// pinned returns the pinned threads of the house, and recent the others. A child directly follows its parent if both are
// returned.
func (f layout) pinned() []listedThread { return nested(f.Threads, true) }

func (f layout) recent() []listedThread { return nested(f.Threads, false) }

func nested(all []*arbev1.Thread, pinned bool) []listedThread {
	var top []*arbev1.Thread
	byID, children := map[string]*arbev1.Thread{}, map[string][]*arbev1.Thread{}
	for _, t := range all {
		byID[t.Id] = t
	}
	for _, t := range all {
		parent := byID[t.ParentThreadId]
		switch {
		case (t.PinnedAt != nil) != pinned:
		case parent != nil && (parent.PinnedAt != nil) == pinned:
			children[parent.Id] = append(children[parent.Id], t)
		default:
			top = append(top, t)
		}
	}
	var ordered []listedThread
	var add func(t *arbev1.Thread, child bool)
	add = func(t *arbev1.Thread, child bool) {
		one := listedThread{Thread: t, Child: child}
		if !child {
			one.Parent = byID[t.ParentThreadId]
		}
		ordered = append(ordered, one)
		for _, c := range children[t.Id] {
			add(c, true)
		}
	}
	for _, t := range top {
		add(t, false)
	}
	return ordered
}

// status is a thread's status as a page shows it: a class, which has a shape and a colour, and a word.
type status struct{ Class, Word string }

// stateOf returns what a thread is doing now. It waits while a bot asks for a person's yes, and it is running while a command
// runs or a bot works in it, even if the status in its row is "open".
func stateOf(t *arbev1.Thread) status {
	switch {
	case t.OpenApprovals > 0:
		return status{Class: "waiting", Word: "waits for a yes"}
	case t.Running.GetTurnId() != "":
		return status{Class: "running", Word: cmp.Or(clip(t.Running.AgentName, 40), "a bot") + " at work"}
	case t.Running != nil:
		return statusOf("running")
	}
	return statusOf(t.Status)
}

// statusOf returns how a status is shown. An unknown one has the shape of idle and its own word.
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

// houseTitle is the title of a house's window, with the numbers of threads in its list that wait for a person's yes or are
// running. The script updates it.
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
	// pageOfThreads is how many threads the places and a page of a house's list show.
	pageOfThreads = 100
	// maxPatches is how many patches of a listing are sent at most. After more changes the whole listing is sent.
	maxPatches = 40
)

// digest identifies the state of the threads that a page shows.
func (f layout) digest() string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(f.Next)) // no error, because a hash never fails
	for _, t := range f.Threads {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
		if err != nil {
			return "" // equals no digest, so that the whole list is sent
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

package live

import (
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// MaxThreads is the largest [Want.Threads]. This and the next two limits bound the memory of a picture, however large
	// its house is.
	MaxThreads = 200
	// MaxForks is how many forks of a thread a picture holds: one more than a page shows, so that the page knows
	// whether there are others.
	MaxForks = 21
	// MaxChildren is how many children of a thread a picture holds: one more than a page shows.
	MaxChildren = 101
	// MaxMembers is how many members of a house a picture holds.
	MaxMembers = 1000
)

// Want says what to watch besides the house itself.
type Want struct {
	// Threads is how many threads to watch from the start of the house's list, at most [MaxThreads].
	Threads int
	// IDs are threads to watch together with their sandbox, environment, parent, source, forks and children.
	IDs []string
	// Members says whether to watch the members of the house, Bots whether to watch its bots.
	Members, Bots bool
	// Reader is the member whose inbox to watch; empty for none. The inbox includes how far they have read the first
	// hundred threads and the threads of Threads and IDs.
	Reader string
}

// Kind is the kind of a row.
type Kind string

// The kinds.
const (
	House       Kind = "house"
	Thread      Kind = "thread"
	Sandbox     Kind = "sandbox"
	Environment Kind = "environment"
	Member      Kind = "member"
	Bot         Kind = "bot"
	// Inbox has a member's needs and readings; its id is the member's.
	Inbox Kind = "inbox"
	// TheRest says where the list of threads continues after the first ones. It has no id.
	TheRest Kind = "rest"
)

// Key identifies a row. For a member and a bot, ID is the agent's id.
type Key struct {
	Kind Kind
	ID   string
}

// Rest is the rest of the list of threads.
type Rest struct {
	// More says whether there are more threads, and After is the cursor from which the list continues.
	More  bool
	After thread.Cursor
}

// Change is the new state of a row.
type Change struct {
	Key Key
	// Row is a *[house.House] without a role, *[thread.Thread], *[sandbox.Sandbox], *[sandbox.Environment],
	// *[house.Member], *[bot.Bot] without its instructions, *[inbox.Inbox], or *[Rest]. It is nil if the row is deleted
	// or no longer wanted. Do not change it, because watchers share it.
	Row any
	// CaughtUp reports, without a row, that everything that existed at the start has been sent. It is sent once.
	CaughtUp bool
}

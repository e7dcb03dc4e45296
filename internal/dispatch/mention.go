package dispatch

import (
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
)

// mention is a chat that mentions people.
type mention struct {
	seq    int64
	people []string
}

// mentionsIn returns the chats that mention people other than their author. A direct message is meant for its recipient,
// whether it mentions them or not. A message sent with a credential for one thread mentions nobody, just as it wakes no bot.
func (k known) mentionsIn(n *News, chats []entry.Entry) (found []mention) {
	for _, e := range chats {
		said, ok := chatOf(e)
		if !ok || said.Run != nil || said.Confined {
			continue
		}
		handles := entry.Mentions(said.Text)
		spoken := len(n.People) > 1 && slices.Contains(n.People, e.Author)
		if len(handles) == 0 && !spoken {
			continue
		}
		m := mention{seq: e.Seq}
		for _, p := range n.People {
			if spoken && p != e.Author {
				m.people = append(m.people, p)
			}
		}
		for _, p := range k.people {
			if p.ID != e.Author && !slices.Contains(m.people, p.ID) && slices.ContainsFunc(p.Handles, func(h string) bool { return slices.Contains(handles, h) }) {
				m.people = append(m.people, p.ID)
			}
		}
		if len(m.people) > 0 {
			found = append(found, m)
		}
	}
	return found
}

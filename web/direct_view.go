package web

import (
	"cmp"
	"slices"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxDirect limits the direct messages in the sidebar.
const maxDirect = 8

func shownDirect(i *arbev1.Inbox) []*arbev1.Direct {
	return i.GetDirect()[:min(len(i.GetDirect()), maxDirect)]
}

// directAgent returns the other party of a direct message.
func directAgent(d *arbev1.Direct) *arbev1.Agent {
	return &arbev1.Agent{Id: d.AgentId, Kind: d.AgentKind, Name: cmp.Or(d.AgentName, "former member")}
}

// directTitle names the other party and the subject of a direct message.
func directTitle(d *arbev1.Direct) string {
	who := accountName(directAgent(d))
	if name := clip(d.ThreadName, maxWord); name != "" && name != who {
		return who + " · " + name
	}
	return who
}

// readersWords says in whose lists a thread is, and who may read it: "Everyone in Home sees this".
func readersWords(t *arbev1.Thread, me, house string, people []*arbev1.Agent) string {
	if len(t.PeopleAgentIds) == 0 {
		return "Everyone in " + house + " sees this"
	}
	whom := "you"
	for _, p := range people {
		if p.Id != me && slices.Contains(t.PeopleAgentIds, p.Id) {
			whom = "you and " + accountName(p)
		}
	}
	if !slices.Contains(t.PeopleAgentIds, me) {
		return "A direct message of others, listed for them only. Everyone in " + house + " who has its link can read it"
	}
	return "Listed for " + whom + " only. Everyone in " + house + " who has its link can read it"
}

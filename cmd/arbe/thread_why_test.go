package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A turn that waited for silence may have answered an entry although its beginning names only the first one.
func TestWhyNamesTheTurnsThatAnsweredAnEntry(t *testing.T) {
	t.Parallel()
	logged := func(id, author string, p entry.Payload) *arbev1.Entry {
		d := entry.NewDraft(id, author, p)
		return &arbev1.Entry{Id: id, Seq: 2, Type: d.Type, AuthorAgentId: author, Payload: string(d.Payload)}
	}
	about := logged("two", "ada", entry.Chat{Text: "and then"})
	later := []*arbev1.Entry{
		logged("", "", entry.Skipped{AgentID: "shy", EntryID: "two", Reason: "cooldown", Explanation: "It answered a moment ago."}),
		logged("", "", entry.TurnStarted{TurnID: "t1", AgentID: "bee", EntryID: "one", Reason: "ambient"}),
		logged("", "bee", entry.Chat{Text: "Well.", Turn: &entry.TurnSummary{TurnID: "t1", Answers: []string{"one", "two"}}}),
		logged("", "", entry.TurnStarted{TurnID: "t2", AgentID: "fly", EntryID: "two", Reason: "mention"}),
		logged("", "", entry.TurnEnded{TurnID: "t2", AgentID: "fly", EntryID: "two", Outcome: entry.TurnFailed, Summary: &entry.TurnSummary{TurnID: "t2", Answers: []string{"two"}}}),
	}
	bots := []*arbev1.Bot{{Id: "bee", Handle: "bee"}, {Id: "fly", Handle: "fly"}, {Id: "shy", Handle: "shy"}, {Id: "far", Handle: "far"}}
	got := why(whyRows(about, later, bots, &arbev1.GetThreadResponse{Decided: 2}))
	if want := []string{"@shy skipped cooldown ", "@bee started ambient t1", "@fly started mention t2", "@far none not_mentioned "}; !slices.Equal(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// An undecided entry is never reported as decided.
func TestWhySaysWhatIsNotDecidedYet(t *testing.T) {
	t.Parallel()
	about := &arbev1.Entry{Id: "two", Seq: 2, Type: "chat", Payload: `{"text":"hi"}`}
	bots := []*arbev1.Bot{{Id: "bee", Handle: "bee"}, {Id: "fly", Handle: "fly"}}
	delayed := []*arbev1.WaitingBot{{AgentId: "bee", TurnId: "t1", EntryIds: []string{"one", "two"}, Reason: "ambient"}}
	for _, c := range []struct {
		name      string
		decisions *arbev1.GetThreadResponse
		want      []string
	}{
		{"which bots it wakes", &arbev1.GetThreadResponse{Decided: 1}, []string{"@bee undecided  ", "@fly undecided  "}},
		{"whether a bot that listens begins", &arbev1.GetThreadResponse{Decided: 2, Waiting: delayed}, []string{"@bee waits ambient t1", "@fly none not_mentioned "}},
		{"nothing", &arbev1.GetThreadResponse{Decided: 2}, []string{"@bee none not_mentioned ", "@fly none not_mentioned "}},
	} {
		if got := why(whyRows(about, nil, bots, c.decisions)); !slices.Equal(got, c.want) {
			t.Errorf("if it is not decided %s, it says %q, want %q", c.name, got, c.want)
		}
	}
}

func why(rows []row) (got []string) {
	for _, r := range rows {
		v := r.view.(whyView)
		got = append(got, fmt.Sprintf("%s %s %s %s", v.Bot, v.Answer, v.Reason, v.TurnID))
	}
	return got
}

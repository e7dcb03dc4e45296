package web_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/arbe-dev/arbe/internal/entry"
)

// The cards that say how work failed or was stopped begin where the text of messages begins, so that the page has one edge.
func TestCardsAlignWithTheText(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("aligns001")
	f.says("aligns001", "", "turn.t1.end", entry.TurnEnded{TurnID: "t1", AgentID: bee, EntryID: "question", Outcome: entry.TurnFailed, Message: "the key is refused", Next: "set another"})
	f.says("aligns001", f.me.Id, "again", entry.Chat{Text: "And now?"})
	f.says("aligns001", "", "turn.t2.start", entry.TurnStarted{TurnID: "t2", AgentID: bee, EntryID: "again", Reason: "mention"})
	f.says("aligns001", "", "turn.t2.end", entry.TurnEnded{TurnID: "t2", AgentID: bee, EntryID: "again", Outcome: entry.TurnStopped, StoppedBy: f.me.Id})
	f.says("aligns001", "", "", entry.EnvironmentPrepared{SandboxID: "box1", Steps: []entry.PreparationStep{{Name: "setup", ExitCode: 1, Output: "boom"}}})
	for thread, outcome := range map[string]string{"aligns002": "failed", "aligns003": "cancelled"} {
		f.drives(thread)
		f.says(thread, bee, entry.RunEntryID(1, 0), entry.PiAssistant{Harness: "pi", StopReason: entry.PiStopped, Content: []entry.PiBlock{entry.PiText("I look at it.")}})
		f.ends(thread, outcome, entry.RunFinished{Epoch: 1, Outcome: outcome, Error: "the model is away", Phase: entry.PhaseExecution, LastLines: "boom"})
	}
	base := f.start(t)
	for _, width := range []int64{390, 1440} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			b := newTab(t, base)
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 720})
			for thread, cards := range map[string]int{"aligns001": 3, "aligns002": 1, "aligns003": 1} {
				b.open("/threads/" + thread)
				b.untilLive()
				b.until("the cards", fmt.Sprintf("document.querySelectorAll('#log :is(.turn-end, .failure)').length === %d", cards))
				edges := eval[[][]float64](b, `['#log .chat', '#log :is(.turn-end, .failure)'].map(what => [...document.querySelectorAll(what)].map(e => Math.round(e.getBoundingClientRect().left)))`)
				for _, card := range edges[1] {
					for _, text := range edges[0] {
						if card != text {
							t.Errorf("%s: the texts begin at %v, and the cards at %v", thread, edges[0], edges[1])
						}
					}
				}
				if len(edges[0]) == 0 {
					t.Errorf("%s has no text", thread)
				}
			}
		})
	}
}

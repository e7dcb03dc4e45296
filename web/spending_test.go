package web_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestALimitThatIsReachedLeadsToWhereItIsRaised(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnlimits")
	end := func(id, limit, next string) {
		f.says("turnlimits", "", "turn."+id+".end", entry.TurnEnded{TurnID: id, AgentID: bee, EntryID: "question", Outcome: entry.TurnLimited, Reason: limit, Message: limit + " is spent", Next: next})
	}
	end("t1", "house_usd_day", "wait until midnight UTC, or have an owner raise it; the command is: arbe house limit 100 --house home")
	end("t2", "turn_steps", "let it try again; the command is: arbe bot edit @bee")
	_, text := ada(t, f).get("/threads/turnlimits")
	contains(t, text, "/houses/home/bots#spending", "Wait until midnight UTC, or have an owner raise it.", "/houses/home/bots/"+bee+"#f-turn_steps", "Let it try again.",
		"/threads/turnlimits/turns/t1/retry")
	lacks(t, text, "arbe house limit", "arbe bot edit")
}

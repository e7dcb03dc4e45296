package server

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/house"
)

// What houses and persons may use is bounded also where the operator has set nothing.
func TestQuotasWithoutSettings(t *testing.T) {
	t.Parallel()
	c, _, err := Load(map[string]string{"data_dir": t.TempDir()}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.quotas()
	if err != nil {
		t.Fatal(err)
	}
	if b := q.budget; b.DayMicros != 200e6 || b.PersonMicros != 50e6 || b.UnknownMicros != 10e6 {
		t.Errorf("the money is %+v", b)
	}
	if r := q.roots.WithDefaults(); r.Turns != 50 || r.Threads != 20 || r.Time != 24*time.Hour || r.Micros != 20e6 {
		t.Errorf("from a message may follow %+v", r)
	}
	if q.turnMaxima.TurnMinutes != bot.DefaultMaxima.TurnMinutes || q.turnMaxima.TurnUSD != bot.DefaultMaxima.TurnUSD || q.turnMaxima.TurnSteps == 0 || q.turnMaxima.TurnTokens == 0 {
		t.Errorf("a turn may be allowed %+v", q.turnMaxima)
	}
	if w := q.work; w.HouseTurns <= 0 || w.PersonTurns <= 0 || w.ThreadTurnsWaiting <= 0 || w.HouseTurnsWaiting <= 0 || w.PersonTurnsWaiting <= 0 {
		t.Errorf("the work is %+v", w)
	}
	if q.housesPerPerson != 10 {
		t.Errorf("%d houses may belong to a person", q.housesPerPerson)
	}
}

func TestQuotasAreWhatTheSettingsSay(t *testing.T) {
	t.Parallel()
	c, _, err := Load(map[string]string{
		"data_dir": t.TempDir(), "installation_usd_day": "1.5", "person_usd_day": "0.25", "unknown_usd": "0", "entry_usd": "2", "turn_max_usd": "0.5",
		"turn_max_minutes": "7", "house_creation": "operators", "houses_per_person": "2", "person_turns": "3", "person_turn_queue": "4", "entry_time": "1h",
	}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.quotas()
	if err != nil {
		t.Fatal(err)
	}
	if b := q.budget; b.DayMicros != 1.5e6 || b.PersonMicros != 0.25e6 || b.UnknownMicros != 0 {
		t.Errorf("the money is %+v", b)
	}
	if q.roots.Micros != 2e6 || q.roots.Time != time.Hour || q.turnMaxima.TurnUSD != 0.5 || q.turnMaxima.TurnMinutes != 7 {
		t.Errorf("they are %+v and %+v", q.roots, q.turnMaxima)
	}
	if q.creation != house.Operators || q.housesPerPerson != 2 || q.work.PersonTurns != 3 || q.work.PersonTurnsWaiting != 4 {
		t.Errorf("they are %+v", q)
	}
}

package server

import (
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/house"
)

// Houses and people are limited even if the operator has set nothing.
func TestQuotasWithoutSettings(t *testing.T) {
	t.Parallel()
	c, _, err := Load(map[string]string{"data_dir": t.TempDir()}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Budget; b.DayMicros != 200e6 || b.PersonMicros != 50e6 || b.UnknownMicros != 10e6 {
		t.Errorf("the money is %+v", b)
	}
	if r := c.Roots; r.Turns != 50 || r.Threads != 20 || r.Time != 24*time.Hour || r.Micros != 20e6 {
		t.Errorf("from a message may follow %+v", r)
	}
	if c.BotMaxima.TurnMinutes != bot.DefaultMaxima.TurnMinutes || c.BotMaxima.TurnUSD != bot.DefaultMaxima.TurnUSD || c.BotMaxima.TurnSteps == 0 || c.BotMaxima.TurnTokens == 0 {
		t.Errorf("a turn may be allowed %+v", c.BotMaxima)
	}
	if w := c.Work; w.Turns.HouseRunning <= 0 || w.Turns.PersonRunning <= 0 || w.Turns.ThreadWaiting <= 0 || w.Turns.HouseWaiting <= 0 || w.Turns.PersonWaiting <= 0 {
		t.Errorf("the work is %+v", w)
	}
	if c.ArtifactQuota != 10<<30 || c.PersonArtifactQuota != 30<<30 {
		t.Errorf("artifacts of a house may have %d bytes, and of a person %d", c.ArtifactQuota, c.PersonArtifactQuota)
	}
	if c.LogQuota != 20<<30 || c.MemberLogQuota != 10<<30 {
		t.Errorf("logs of a house may have %d bytes, and of a member %d", c.LogQuota, c.MemberLogQuota)
	}
	if c.HousesPerPerson != 10 {
		t.Errorf("%d houses may belong to a person", c.HousesPerPerson)
	}
}

func TestQuotasAreWhatTheSettingsSay(t *testing.T) {
	t.Parallel()
	c, _, err := Load(map[string]string{
		"data_dir": t.TempDir(), "installation_usd_day": "1.5", "person_usd_day": "0.25", "unknown_usd": "0", "entry_usd": "2", "turn_max_usd": "0.5", "run_max_usd": "3", "run_max_minutes": "9", "thread_max_usd_day": "30",
		"house_max_usd_day": "40", "member_max_usd_day": "5",
		"turn_max_minutes": "7", "house_creation": "operators", "houses_per_person": "2", "person_turns": "3", "person_turn_queue": "4", "entry_time": "1h",
	}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Budget; b.DayMicros != 1.5e6 || b.PersonMicros != 0.25e6 || b.UnknownMicros != 0 {
		t.Errorf("the money is %+v", b)
	}
	if c.Roots.Micros != 2e6 || c.Roots.Time != time.Hour || c.BotMaxima.TurnUSD != 0.5 || c.BotMaxima.TurnMinutes != 7 || c.BotMaxima.RunUSD != 3 || c.BotMaxima.RunMinutes != 9 || c.BotMaxima.ThreadUSDDay != 30 || c.HouseMaxima != (house.Limits{USDDay: 40, MemberUSDDay: 5}) {
		t.Errorf("they are %+v, %+v and %+v", c.Roots, c.BotMaxima, c.HouseMaxima)
	}
	if c.HouseCreation != house.Operators || c.HousesPerPerson != 2 || c.Work.Turns.PersonRunning != 3 || c.Work.Turns.PersonWaiting != 4 {
		t.Errorf("they are %+v", c)
	}
}

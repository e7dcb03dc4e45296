package bot

import (
	"strconv"

	"github.com/arbe-dev/arbe/internal/setting"
)

// MaximaSettings returns the operator's settings for the highest limits of bots.
func MaximaSettings() []setting.Setting[Limits] {
	return []setting.Setting[Limits]{
		setting.Count("turn_max_steps", strconv.Itoa(DefaultMaxima.TurnSteps), "maximum of a bot's limit turn_steps", func(l *Limits) *int { return &l.TurnSteps }),
		setting.Count("turn_max_tokens", strconv.FormatInt(DefaultMaxima.TurnTokens, 10), "maximum of a bot's limit turn_tokens", func(l *Limits) *int64 { return &l.TurnTokens }),
		setting.Dollars("turn_max_usd", strconv.FormatFloat(DefaultMaxima.TurnUSD, 'f', -1, 64), "maximum of a bot's limit turn_usd", func(l *Limits) *float64 { return &l.TurnUSD }),
		setting.Count("turn_max_minutes", strconv.Itoa(DefaultMaxima.TurnMinutes), "maximum of a bot's limit turn_minutes", func(l *Limits) *int { return &l.TurnMinutes }),
		setting.Dollars("run_max_usd", strconv.FormatFloat(DefaultMaxima.RunUSD, 'f', -1, 64), "maximum of a bot's limit run_usd", func(l *Limits) *float64 { return &l.RunUSD }),
		setting.Count("run_max_minutes", strconv.Itoa(DefaultMaxima.RunMinutes), "maximum of a bot's limit run_minutes", func(l *Limits) *int { return &l.RunMinutes }),
		setting.Dollars("thread_max_usd_day", strconv.FormatFloat(DefaultMaxima.ThreadUSDDay, 'f', -1, 64), "maximum of a bot's limit thread_usd_day", func(l *Limits) *float64 { return &l.ThreadUSDDay }),
	}
}

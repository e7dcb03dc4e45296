package model

import (
	"math"
	"strconv"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Money is an amount in US dollars, in millionths of a millionth: fine enough to be exact for single tokens.
type Money int64

// Dollar is one US dollar.
const Dollar Money = 1e12

// Micros returns the amount in millionths of a dollar, rounded up, so that many small amounts never count as nothing.
func (m Money) Micros() int64 {
	const micro = int64(Dollar / 1e6)
	return (int64(m) + micro - 1) / micro
}

// String returns the amount as "$0.02", with as many decimals as it takes to show two digits.
func (m Money) String() string {
	dollars := float64(m) / float64(Dollar)
	decimals := 2
	if dollars > 0 && dollars < 0.1 {
		decimals = min(1-int(math.Floor(math.Log10(dollars))), 12)
	}
	return "$" + strconv.FormatFloat(dollars, 'f', decimals, 64)
}

// Price is the price of one token of each kind.
type Price struct{ Input, Output, CacheRead, CacheWrite Money }

// Usage counts the tokens of a call. Input does not overlap with the caches, and Output includes thinking.
type Usage struct{ Input, Output, CacheRead, CacheWrite int64 }

// Total returns the sum of all tokens.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Of returns the cost of tokens.
func (p Price) Of(u Usage) Money {
	return Money(u.Input)*p.Input + Money(u.Output)*p.Output + Money(u.CacheRead)*p.CacheRead + Money(u.CacheWrite)*p.CacheWrite
}

// pi returns a usage in pi's shape. price is nil if it is not known.
func (u Usage) pi(price *Price) entry.PiUsage {
	pi := entry.PiUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, TotalTokens: u.Total()}
	if price != nil {
		dollars := func(tokens int64, each Money) float64 { return float64(Money(tokens)*each) / float64(Dollar) }
		pi.Cost = &entry.PiCost{Input: dollars(u.Input, price.Input), Output: dollars(u.Output, price.Output),
			CacheRead: dollars(u.CacheRead, price.CacheRead), CacheWrite: dollars(u.CacheWrite, price.CacheWrite),
			Total: float64(price.Of(u)) / float64(Dollar)}
	}
	return pi
}

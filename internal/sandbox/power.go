package sandbox

import "time"

// Meter says whether a box runs, and what that costs.
type Meter struct {
	Power Power
	// HourlyMicros is what an hour of running costs, in millionths of a US dollar: 0 for nothing, or [PriceUnknown].
	HourlyMicros int64
}

// Power says whether a box runs. It is empty if the provider does not say so, for example while the box starts.
type Power string

// The powers of a box. The provider does not charge for the time of a box that is off.
const (
	PowerOn  Power = "on"
	PowerOff Power = "off"
)

// PriceUnknown is the price of boxes that cost something, if nobody knows how much.
const PriceUnknown = -1

// HourlyPrice returns a price that an operator may have set, or else another one.
func HourlyPrice(set *int64, otherwise int64) int64 {
	if set != nil {
		return *set
	}
	return otherwise
}

// Running is the running time of sandboxes, and what it cost.
type Running struct {
	Time time.Duration
	// Unpriced is the part of Time that costs something, but nobody knows how much.
	Unpriced time.Duration
	// CostMicros is the cost of the rest, in millionths of a US dollar.
	CostMicros int64
}

func runningOf(ms, unpriced, cost int64) Running {
	return Running{time.Duration(ms) * time.Millisecond, time.Duration(unpriced) * time.Millisecond, cost}
}

// sweepEach is the time between two sweeps of the boxes of this machine.
const sweepEach = 5 * time.Minute

// known is what is known of a box at a moment.
type known string

// The box runs, does not run, or runs and is being deleted.
const (
	knownRunning known = "running"
	knownStopped known = "stopped"
	knownRemoved known = "removed"
)

// observation is what somebody learned about a sandbox.
type observation struct {
	known known
	// at is the moment; zero is now.
	at time.Time
	// hourly is the price from now on; nil if it is not known to have changed.
	hourly *int64
	// before is how long the box ran before the first observation with a price. It counts once.
	before time.Duration
}

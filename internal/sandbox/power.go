package sandbox

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

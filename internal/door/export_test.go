package door

import (
	"maps"
	"slices"
)

// Controls returns the requests about subscriptions that the door knows: "POST claim", "PUT " and so on.
func Controls() []string { return slices.Sorted(maps.Keys(controls)) }

package house_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/house"
)

func TestTheLimitsThatHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what                 string
		set, maxima, holding house.Limits
	}{
		{"none", house.Limits{}, house.DefaultMaxima, house.Limits{USDDay: 50}},
		{"set ones", house.Limits{USDDay: 70, MemberUSDDay: 2}, house.DefaultMaxima, house.Limits{USDDay: 70, MemberUSDDay: 2}},
		{"set ones above the operator's", house.Limits{USDDay: 70, MemberUSDDay: 20}, house.Limits{USDDay: 40, MemberUSDDay: 5}, house.Limits{USDDay: 40, MemberUSDDay: 5}},
		{"none, and lower ones of the operator", house.Limits{}, house.Limits{USDDay: 40, MemberUSDDay: 5}, house.Limits{USDDay: 40, MemberUSDDay: 5}},
	} {
		if got := c.set.Within(c.maxima); got != c.holding {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.holding)
		}
	}
}

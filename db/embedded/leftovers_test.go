package embedded

import "testing"

func TestLeftoversThatEndByThemselvesAreNotInTheWay(t *testing.T) {
	t.Parallel()
	const postmaster, orphan = 1<<30 + 1, 1 << 30 // no system has so many
	for looks := range 4 {
		left := looks
		find := func() []int {
			if left == 0 {
				return nil
			}
			left--
			return []int{orphan}
		}
		if err := end(t.Context(), "a cluster", postmaster, find); err != nil {
			t.Errorf("when they are gone after %d looks: %v", looks, err)
		}
	}
}

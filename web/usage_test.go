package web_test

import (
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAThreadShowsItsContextAndItsCost(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("costcost", "Cost")
	in := ada(t, f)
	_, page := in.get("/threads/costcost")
	lacks(t, page, `id="usage"`)
	for _, c := range []struct {
		used *arbev1.ThreadUsage
		want []string
	}{
		{&arbev1.ThreadUsage{Calls: 3, Usd: 0.45, Model: "anthropic/claude", ContextTokens: 90_000, ContextWindow: 200_000},
			[]string{"45% full", "anthropic/claude read 90,000 of 200,000 tokens at its last call", "$0.45"}},
		{&arbev1.ThreadUsage{Calls: 1, UsdUnknown: true, Model: "lab/" + evil, ContextTokens: 1_234}, []string{"1,234 tokens", "unknown price"}},
		{&arbev1.ThreadUsage{Calls: 2, Usd: 1}, []string{"$1.00"}}, // only agents below it have asked models
	} {
		f.mu.Lock()
		f.used = c.used
		f.mu.Unlock()
		_, page := in.get("/threads/costcost")
		contains(t, page, append(c.want, `id="usage"`)...)
		lacks(t, page, evil)
	}
}

package web_test

import (
	"slices"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// What a sandbox cost is known only as far as its price is.
func TestPagesSayHowLongASandboxRanAndWhatThatCost(t *testing.T) {
	t.Parallel()
	const minute = 60_000
	hourly := int64(66_924)
	for _, c := range []struct {
		name               string
		use                *arbev1.SandboxUse
		says, thread, page []string // on all pages, on the thread's page, on the page of the sandbox
		sum, not           []string // on the page of all sandboxes, and on none
	}{
		{
			"with a price", &arbev1.SandboxUse{Running: &arbev1.SandboxRunning{TimeMs: 90 * minute, CostMicros: 100_386}, HourlyMicros: &hourly},
			[]string{"1 h 30 min", "$0.10"}, []string{"<dt>Ran</dt>", "<dt>Cost</dt>"}, []string{"$0.0669 per hour of running"},
			[]string{"Since 1 Nov 2026, sandboxes ran for 1 h 30 min, deleted ones included.", "that cost $0.10.</p>"}, []string{"unknown price", "price is unknown"},
		},
		{
			"without a known price", &arbev1.SandboxUse{Running: &arbev1.SandboxRunning{TimeMs: 5 * minute, UnpricedMs: 5 * minute}},
			[]string{"5 min", "unknown price"}, []string{"<dt>Cost</dt>"}, nil, []string{"included. For 5 min, the price is unknown."}, []string{"per hour of running", "$0.00"},
		},
		{
			"whose price became known", &arbev1.SandboxUse{Running: &arbev1.SandboxRunning{TimeMs: 65 * minute, UnpricedMs: 5 * minute, CostMicros: 66_924}, HourlyMicros: &hourly},
			[]string{"1 h 5 min", "$0.07 and more of unknown price"}, nil, nil, []string{"that cost $0.07. For 5 min, the price is unknown."}, nil,
		},
		{
			"that costs nothing", &arbev1.SandboxUse{Running: &arbev1.SandboxRunning{TimeMs: 5 * minute}, HourlyMicros: new(int64)},
			[]string{"5 min"}, []string{"<dt>Ran</dt>"}, nil, nil, []string{"<dt>Cost</dt>", "per hour of running", `id="spending"`, "$0.00"},
		},
		{"that has not run", &arbev1.SandboxUse{}, nil, nil, nil, nil, []string{"<dt>Ran</dt>", "<dt>Cost</dt>", "· ran", `id="spending"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.boxes["box1"] = &arbev1.Sandbox{Id: "box1", HouseId: "home", Provider: "daytona", Status: arbev1.SandboxStatus_SANDBOX_STATUS_LIVE, Use: c.use}
			f.thread("t1", "Work").SandboxId = "box1"
			ada := ada(t, f)
			for path, says := range map[string][]string{"/threads/t1": c.thread, "/sandboxes/box1": c.page, "/houses/home/sandboxes": c.sum} {
				_, text := ada.get(path)
				contains(t, text, slices.Concat(says, c.says)...)
				lacks(t, text, c.not...)
			}
		})
	}
}

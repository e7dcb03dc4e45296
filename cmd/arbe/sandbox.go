package main

import (
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type sandboxView struct {
	ID            string     `json:"id"`
	HouseID       string     `json:"house_id"`
	EnvironmentID string     `json:"environment_id"`
	Provider      string     `json:"provider"`
	Status        string     `json:"status"`
	OwnAccount    bool       `json:"own_account,omitempty"`
	Ephemeral     bool       `json:"ephemeral,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	DestroyedAt   *time.Time `json:"destroyed_at,omitempty"`
	// The users of the sandbox. Threads has at most five threads; direct messages are only counted.
	Environment string     `json:"environment,omitempty"`
	UsedAt      *time.Time `json:"used_at,omitempty"`
	SavedAt     *time.Time `json:"saved_at,omitempty"`
	ThreadCount int32      `json:"thread_count,omitempty"`
	Threads     []string   `json:"threads,omitempty"`
	DiskBytes   int64      `json:"disk_bytes,omitempty"`
	// How long it has run, and what that cost, in millionths of a US dollar. The price of UnpricedMS is unknown. HourlyMicros is the
	// price of an hour now; absent if it is unknown.
	RunningMS    int64  `json:"running_ms"`
	UnpricedMS   int64  `json:"unpriced_ms,omitempty"`
	CostMicros   int64  `json:"cost_micros"`
	HourlyMicros *int64 `json:"hourly_micros,omitempty"`
}

// driverOf names the driver of a sandbox, and the house's own account.
func driverOf(s *arbev1.Sandbox) string {
	if s.GetOwnAccount() {
		return s.GetProvider() + " (own account)"
	}
	return s.GetProvider()
}

// ranText formats how long a sandbox has run, and costText what that cost.
func ranText(r *arbev1.SandboxRunning) string {
	if r.GetTimeMs() == 0 {
		return "-"
	}
	return entry.Approximately(time.Duration(r.GetTimeMs()) * time.Millisecond)
}

func costText(r *arbev1.SandboxRunning) string {
	switch {
	case r.GetUnpricedMs() > 0 && r.GetCostMicros() > 0:
		return dollarText(r.GetCostMicros()) + " and more"
	case r.GetUnpricedMs() > 0:
		return "unknown"
	case r.GetCostMicros() == 0:
		return "-"
	}
	return dollarText(r.GetCostMicros())
}

// dollarText formats millionths of a US dollar.
func dollarText(micros int64) string {
	if micros < 10_000 {
		return "under $0.01"
	}
	return fmt.Sprintf("$%.2f", float64(micros)/1e6)
}

func viewSandbox(s *arbev1.Sandbox) sandboxView {
	use := s.GetUse()
	v := sandboxView{
		ID: s.GetId(), HouseID: s.GetHouseId(), EnvironmentID: s.GetEnvironmentId(), Provider: s.GetProvider(), Status: arbev1.Word(s.GetStatus()),
		OwnAccount: s.GetOwnAccount(), Ephemeral: s.GetEphemeral(), CreatedAt: s.GetCreatedAt().AsTime(), DestroyedAt: export.Optional(s.GetDestroyedAt()),
		Environment: use.GetEnvironmentName(), UsedAt: export.Optional(use.GetUsedAt()), SavedAt: export.Optional(use.GetSavedAt()), ThreadCount: use.GetThreadCount(), DiskBytes: use.GetDiskBytes(),
		RunningMS: use.GetRunning().GetTimeMs(), UnpricedMS: use.GetRunning().GetUnpricedMs(), CostMicros: use.GetRunning().GetCostMicros(),
	}
	if use != nil {
		v.HourlyMicros = use.HourlyMicros
	}
	for _, t := range use.GetThreads() {
		v.Threads = append(v.Threads, t.GetThreadId())
	}
	return v
}

package main

import (
	"time"

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
}

// driverOf names the driver of a sandbox, and the house's own account.
func driverOf(s *arbev1.Sandbox) string {
	if s.GetOwnAccount() {
		return s.GetProvider() + " (own account)"
	}
	return s.GetProvider()
}

func viewSandbox(s *arbev1.Sandbox) sandboxView {
	use := s.GetUse()
	v := sandboxView{
		ID: s.GetId(), HouseID: s.GetHouseId(), EnvironmentID: s.GetEnvironmentId(), Provider: s.GetProvider(), Status: arbev1.Word(s.GetStatus()),
		OwnAccount: s.GetOwnAccount(), Ephemeral: s.GetEphemeral(), CreatedAt: s.GetCreatedAt().AsTime(), DestroyedAt: export.Optional(s.GetDestroyedAt()),
		Environment: use.GetEnvironmentName(), UsedAt: export.Optional(use.GetUsedAt()), SavedAt: export.Optional(use.GetSavedAt()), ThreadCount: use.GetThreadCount(), DiskBytes: use.GetDiskBytes(),
	}
	for _, t := range use.GetThreads() {
		v.Threads = append(v.Threads, t.GetThreadId())
	}
	return v
}

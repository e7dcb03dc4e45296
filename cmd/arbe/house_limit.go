package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseLimit(a *app) *cobra.Command {
	var house, member string
	var reset bool
	cmd := &cobra.Command{
		Use:   "limit [USD]",
		Short: "Show or set how much the bots of a house may cost in a day",
		Long: "Show what the bots of a house have cost since midnight UTC and what they may cost in a day or, with USD, set the\n" +
			"latter in US dollars. --member limits what one person's messages and tasks cost in a day; 0 removes that limit. A\n" +
			"working bot stops at its next step when a limit is reached. After the limit was raised, retry its turn. With\n" +
			"--reset the limit of the house is the default of $50. Only owners set limits.",
		Example: "  arbe house limit\n" +
			"  arbe house limit 100\n" +
			"  arbe house limit --member 5",
		Args: takes(0, 1, "at most one amount in US dollars"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			amount, ofMember, err := limitAmounts(args, member, reset)
			if err != nil {
				return err
			}
			id, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: id, Usage: true})
			if err != nil {
				return err
			}
			if reset || len(args) > 0 || member != "" { // a change replaces all limits
				limits := cmp.Or(got.GetHouse().GetLimits(), new(arbev1.HouseLimits))
				if reset || len(args) > 0 {
					limits.HouseUsdDay = amount
				}
				if member != "" {
					limits.MemberUsdDay = ofMember
				}
				if _, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: id, Etag: got.GetHouse().GetEtag(), Limits: limits}); err != nil {
					return err
				}
				if got, err = c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: id, Usage: true}); err != nil {
					return err
				}
			}
			return a.show(id, viewLimit(got), func() string { return limitWords(got.GetUsedToday()) + logWords(got.GetLogs()) })
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&reset, "reset", false, "use the default")
	cmd.Flags().StringVar(&member, "member", "", "limit the cost of one person's messages in a day, in US dollars (`USD`)")
	return cmd
}

// limitAmounts parses the new limits of a house and of one person; 0 if none is given.
func limitAmounts(args []string, member string, reset bool) (house, person float64, err error) {
	if reset && len(args) > 0 {
		return 0, 0, fault.New(fault.Invalid, "an amount and --reset are both given", "leave one out")
	}
	if len(args) > 0 {
		if house, err = strconv.ParseFloat(strings.TrimPrefix(args[0], "$"), 64); err != nil || !(house > 0) {
			return 0, 0, fault.Newf(fault.Invalid, "give an amount above 0, such as 25 or 0.50, or --reset for the default", "%q is not an amount in US dollars", args[0])
		}
	}
	if member != "" {
		if person, err = strconv.ParseFloat(strings.TrimPrefix(member, "$"), 64); err != nil {
			return 0, 0, fault.Newf(fault.Invalid, "give an amount such as 5 or 0.50, or 0 for no limit", "--member: %q is not an amount in US dollars", member)
		}
	}
	return house, person, nil
}

// limitView is the spending of a house, as JSON.
type limitView struct {
	HouseID string `json:"house_id"`
	// Limit is the default if Default is set.
	Limit   float64 `json:"house_usd_day"`
	Default bool    `json:"default"`
	Used    float64 `json:"used_usd_today"`
	// Unknown means that some calls were to models without a known price. Such calls count as free.
	Unknown bool  `json:"used_usd_unknown,omitempty"`
	Calls   int64 `json:"calls_today"`
	// Shared is the part that was spent with keys of the installation. Person is the same for all houses of the owner. The
	// operator sets the limits of both; 0 means no limit.
	Shared            float64 `json:"shared_usd_today"`
	Person            float64 `json:"person_usd_today"`
	PersonLimit       float64 `json:"person_usd_day"`
	InstallationLimit float64 `json:"installation_usd_day"`
	InstallationSpent bool    `json:"installation_spent"`
	// Member is the cost of the caller's messages and everything that follows from them; 0 as its limit means no limit.
	Member      float64 `json:"member_usd_today"`
	MemberLimit float64 `json:"member_usd_day"`
	// The size of the house's logs in the database, and their quota.
	LogEntries    int64 `json:"log_entries"`
	LogBytes      int64 `json:"log_bytes"`
	LogBytesLimit int64 `json:"log_bytes_limit"`
	// How much of them the caller wrote; if its limit is 0, only the house's quota applies.
	MemberLogBytes      int64 `json:"member_log_bytes"`
	MemberLogBytesLimit int64 `json:"member_log_bytes_limit"`
}

func viewLimit(got *arbev1.GetHouseResponse) limitView {
	used := got.GetUsedToday()
	return limitView{
		HouseID: got.GetHouse().GetId(), Limit: used.GetUsdLimit(), Default: got.GetHouse().GetLimits().GetHouseUsdDay() == 0,
		Used: used.GetUsd(), Unknown: used.GetUsdUnknown(), Calls: used.GetCalls(), Shared: used.GetSharedUsd(), Person: used.GetPersonUsd(),
		PersonLimit: used.GetPersonUsdLimit(), InstallationLimit: used.GetInstallationUsdLimit(), InstallationSpent: used.GetInstallationSpent(),
		Member: used.GetMemberUsd(), MemberLimit: used.GetMemberUsdLimit(),
		LogEntries: got.GetLogs().GetEntries(), LogBytes: got.GetLogs().GetBytes(), LogBytesLimit: got.GetLogs().GetBytesLimit(),
		MemberLogBytes: got.GetLogs().GetMemberBytes(), MemberLogBytesLimit: got.GetLogs().GetMemberBytesLimit(),
	}
}

// logWords describes the size of the logs of a house. It is empty for a server that does not tell.
func logWords(logs *arbev1.HouseLogs) string {
	if logs == nil {
		return ""
	}
	words := fmt.Sprintf("\nlogs: %s of %s, %d entries", entry.FileSize(logs.GetBytes()), entry.FileSize(logs.GetBytesLimit()), logs.GetEntries())
	if most := logs.GetMemberBytesLimit(); most > 0 {
		words += fmt.Sprintf("\nlogs that you wrote: %s of %s", entry.FileSize(logs.GetMemberBytes()), entry.FileSize(most))
	}
	return words
}

// limitWords describes the spending of a house.
func limitWords(used *arbev1.HouseUsage) string {
	line := fmt.Sprintf("$%.2f of $%.2f today", used.GetUsd(), used.GetUsdLimit())
	if used.GetUsdUnknown() {
		line += ", and calls of models whose price is unknown"
	}
	if limit := used.GetMemberUsdLimit(); limit > 0 {
		line += fmt.Sprintf("\nyou: $%.2f of $%.2f today", used.GetMemberUsd(), limit)
	}
	if limit := used.GetPersonUsdLimit(); limit > 0 {
		line += fmt.Sprintf("\nwith keys of the installation: $%.2f of $%.2f today in all houses of this house's first owner", used.GetPersonUsd(), limit)
	}
	if limit := used.GetInstallationUsdLimit(); limit > 0 {
		line += fmt.Sprintf("\nall houses together may spend $%.2f a day with these keys", limit)
		if used.GetInstallationSpent() {
			line += ", and that is spent"
		}
	}
	return line
}

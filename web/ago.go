package web

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// ago is how long ago something was, in as few characters as it takes. The script keeps it true.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d < 7*24*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	case t.Year() == time.Now().Year():
		return t.Format("2 Jan")
	}
	return t.Format("2 Jan 2006")
}

// elapsedText is for how long something has been going on.
func elapsedText(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
}

// dayOf is the day of a moment, for what separates the entries of two days. The script says it in the reader's time.
func dayOf(t time.Time) string { return t.UTC().Format("Monday, 2 January 2006") }

// exact is a moment for machines.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// moment is a moment for people who point at it.
func moment(t time.Time) string { return t.UTC().Format("Mon 2 Jan 2006, 15:04:05 UTC") }

// day is a moment to come, as a date.
func day(t time.Time) string { return t.UTC().Format("2 Jan 2006") }

func when(t *timestamppb.Timestamp) time.Time { return t.AsTime() }

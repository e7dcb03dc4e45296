package web

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// ago formats the age of t as briefly as possible. The script updates it.
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

// past is an age in a sentence, after a word such as "joined": "3m ago". The script updates it.
func past(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Minute:
		return "just now"
	case d < 7*24*time.Hour:
		return ago(t) + " ago"
	}
	return ago(t) // a date
}

// elapsedText formats how long something has been running.
func elapsedText(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
}

// dayOf names the day of t in UTC, for the line between the entries of two days. The server does not know the reader's time
// zone, so the script replaces the name with the day in that zone.
func dayOf(t time.Time) string { return t.UTC().Format("Monday, 2 January 2006") }

// exact formats a time for the datetime attribute.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// moment formats a time for a tooltip.
func moment(t time.Time) string { return t.UTC().Format("Mon 2 Jan 2006, 15:04:05 UTC") }

// day formats a time in the future as a date.
func day(t time.Time) string { return t.UTC().Format("2 Jan 2006") }

func when(t *timestamppb.Timestamp) time.Time { return t.AsTime() }

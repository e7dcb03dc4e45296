package web

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// typingLasts is how long a page shows somebody as writing after the last signal.
	typingLasts = 6 * time.Second
	// maxTyping limits the people who are shown by name.
	maxTyping = 3
)

// typing signals that the reader is writing something.
func (a *app) typing(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.services.entries.ShowTyping(r.Context(), &arbev1.ShowTypingRequest{ThreadId: r.PathValue("thread")}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// typists holds the others who are writing in a thread. It is not safe for concurrent use.
type typists struct {
	// until holds the time at which each stops being shown.
	until map[string]time.Time
	// over fires at the first of these times.
	over *time.Timer
}

func newTypists() *typists {
	over := time.NewTimer(time.Hour)
	over.Stop()
	return &typists{until: map[string]time.Time{}, over: over}
}

// next sets the timer.
func (t *typists) next() {
	t.over.Stop()
	if len(t.until) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(t.until)), time.Time.Compare)
		t.over.Reset(max(time.Until(first), 0))
	}
}

// typingText says who is writing: "Ada and Bob are writing…".
func typingText(names []string) string {
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0] + " is writing…"
	case n > maxTyping:
		return "Several people are writing…"
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " are writing…"
	}
}

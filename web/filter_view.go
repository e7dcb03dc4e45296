package web

import (
	"net/url"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// filter says which threads the list of a house shows; empty for all.
type filter string

const (
	onlyNeeds   filter = "needs"
	onlyRunning filter = "running"
	onlyFailed  filter = "failed"
	onlyClosed  filter = "closed"
)

// filters are the links above the list. None is what the list says when it is empty.
var filters = []struct {
	Only        filter
	Title, None string
}{
	{"", "All", ""},
	{onlyNeeds, "Needs you", "Nothing needs you."},
	{onlyRunning, "Running", "Nothing runs, and nobody is waited for."},
	{onlyFailed, "Failed", "No thread has failed."},
	{onlyClosed, "Closed", "No thread is closed."},
}

// filterOf reads a filter from an address. An unknown one shows all threads.
func filterOf(text string) filter {
	for _, f := range filters {
		if string(f.Only) == text {
			return f.Only
		}
	}
	return ""
}

// status returns the status that the server filters by; unspecified if it lists all threads. For onlyRunning it lists all, and
// the style sheet hides the others, so that the list stays live.
func (o filter) status() arbev1.ThreadStatus {
	switch o {
	case onlyFailed:
		return arbev1.ThreadStatus_THREAD_STATUS_FAILED
	case onlyClosed:
		return arbev1.ThreadStatus_THREAD_STATUS_CLOSED
	}
	return arbev1.ThreadStatus_THREAD_STATUS_UNSPECIFIED
}

func (o filter) query() url.Values {
	q := url.Values{}
	if o != "" {
		q.Set("is", string(o))
	}
	return q
}

// none returns what an empty list says.
func (o filter) none() string {
	for _, f := range filters {
		if f.Only == o {
			return f.None
		}
	}
	return ""
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

package web

import (
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// inSearch is the value of [layout].Current on the page of a search.
const inSearch = "search"

// searchView is a search and its results. Found is nil if the query is empty or has a Problem.
type searchView struct {
	Query string
	Found *arbev1.SearchResponse
	// Threads are the rows of the found threads, by id. Those that were deleted in the meantime are missing.
	Threads map[string]*arbev1.Thread
	Problem *fault.Error
}

func searchPath(house string) string { return housePath(house) + "/search" }

func hitPath(h *arbev1.SearchHit) string {
	return threadPath(h.ThreadId) + "#e" + strconv.FormatInt(h.Seq, 10)
}

func searchTitle(f layout, v searchView) string {
	if v.Query == "" {
		return "Search · " + f.House.Name
	}
	return clip(v.Query, 40) + " · Search · " + f.House.Name
}

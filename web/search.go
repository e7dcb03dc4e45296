package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxFound limits the entries on the page of a search.
const maxFound = 50

// search shows the results of a search in a house.
func (a *app) search(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	if fromScript(r) {
		return a.quickSearch(w, r, house)
	}
	f, err := a.layoutOf(r, house, inSearch)
	if err != nil {
		return err
	}
	v := searchView{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	status := http.StatusOK
	if v.Query != "" {
		v.Found, err = a.services.entries.Search(r.Context(), &arbev1.SearchRequest{HouseId: house, Query: v.Query, PageSize: maxFound})
		if problem := faultOf(err); err != nil {
			if problem.Code != fault.Invalid && problem.Code != fault.Exhausted {
				return err
			}
			v.Problem, status = problem, httpStatus(problem)
		}
	}
	if v.Threads, err = a.rowsOfFound(r.Context(), v.Found); err != nil {
		return err
	}
	return a.show(w, r, status, searchPage(f, v))
}

// maxQuick limits the entries that the palette shows.
const maxQuick = 5

// quickSearch answers the palette with the threads and the first entries that a search finds.
func (a *app) quickSearch(w http.ResponseWriter, r *http.Request, house string) error {
	v := searchView{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	var err error
	if v.Query != "" {
		if v.Found, err = a.services.entries.Search(r.Context(), &arbev1.SearchRequest{HouseId: house, Query: v.Query, PageSize: maxQuick}); err != nil {
			return err
		}
	}
	if v.Threads, err = a.rowsOfFound(r.Context(), v.Found); err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, quickFound(v))
}

// rowsOfFound reads the rows of the threads that a search found, by id. There are five at most.
func (a *app) rowsOfFound(ctx context.Context, found *arbev1.SearchResponse) (rows map[string]*arbev1.Thread, err error) {
	rows = map[string]*arbev1.Thread{}
	for _, t := range found.GetThreads() {
		if rows[t.ThreadId], err = a.threadIfAny(ctx, t.ThreadId); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

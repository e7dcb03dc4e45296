package web

import (
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
	v.Threads = map[string]*arbev1.Thread{}
	for _, t := range v.Found.GetThreads() { // there are five at most
		if v.Threads[t.ThreadId], err = a.threadIfAny(r.Context(), t.ThreadId); err != nil {
			return err
		}
	}
	return a.show(w, r, status, searchPage(f, v))
}

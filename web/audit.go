package web

import (
	"net/http"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// audit shows owners who changed what in the administration of a house.
func (a *app) audit(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	layout, err := a.layoutOf(r, house, inSettings)
	if err != nil {
		return err
	}
	res, err := a.services.houses.ListAuditEvents(r.Context(), &arbev1.ListAuditEventsRequest{HouseId: house, PageToken: r.URL.Query().Get("page")})
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, auditPage(auditView{layout, res.Events, res.NextPageToken}))
}

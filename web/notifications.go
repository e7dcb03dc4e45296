package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// notifications shows the reader how they are notified.
func (a *app) notifications(w http.ResponseWriter, r *http.Request) error {
	v, err := a.notificationsView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, notificationsPage(v))
}

func (a *app) notificationsView(r *http.Request) (v notificationsView, err error) {
	if v.Now, err = a.services.notifications.GetNotifications(r.Context(), &arbev1.GetNotificationsRequest{}); err != nil {
		return v, err
	}
	me, err := a.services.agents.WhoAmI(r.Context(), &arbev1.WhoAmIRequest{})
	if err != nil {
		return v, err
	}
	houses, err := a.services.houses.ListHouses(r.Context(), &arbev1.ListHousesRequest{PageSize: 200})
	if err != nil {
		return v, err
	}
	v.Layout = layout{Theme: a.themeOf(r), Path: r.URL.Path, Me: me.Agent, Houses: houses.Houses}
	v.fill()
	return v, nil
}

// setNotifications saves the form of the page.
func (a *app) setNotifications(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	from, to, zone := strings.TrimSpace(r.PostFormValue("from")), strings.TrimSpace(r.PostFormValue("to")), strings.TrimSpace(r.PostFormValue("zone"))
	settings := &arbev1.NotificationSettings{Digest: digestNamed(r.PostFormValue("digest"))}
	quiet, failed := quietHours(from, to, zone)
	if settings.QuietHours = quiet; failed == nil {
		_, failed = a.services.notifications.UpdateNotifications(r.Context(), &arbev1.UpdateNotificationsRequest{Settings: settings})
	}
	if failed == nil {
		http.Redirect(w, r, "/notifications", http.StatusSeeOther)
		return nil
	}
	v, err := a.notificationsView(r)
	if err != nil {
		return err
	}
	v.From, v.To, v.Zone, v.Digest = from, to, zone, settings.Digest
	if v.Problems, err = problemsOf(failed); err != nil {
		return err
	}
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), notificationsPage(v))
}

// quietHours reads the fields of the form. Without any times there are none.
func quietHours(from, to, zone string) (*arbev1.QuietHours, error) {
	if from == "" && to == "" {
		return nil, nil
	}
	q := &arbev1.QuietHours{TimeZone: zone}
	for text, minute := range map[*string]*int32{&from: &q.From, &to: &q.To} {
		at, err := time.Parse("15:04", *text)
		if err != nil {
			return nil, fault.New(fault.Invalid, "quiet hours need two times", "write both like 22:00, or none")
		}
		*minute = int32(at.Hour()*60 + at.Minute())
	}
	if zone == "" {
		return nil, fault.New(fault.Invalid, "quiet hours need a time zone", "write it like Europe/Berlin")
	}
	return q, nil
}

// addDevice adds the browser that sends what its push service says (script/push.js).
func (a *app) addDevice(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	_, err := a.services.notifications.AddPushDevice(r.Context(), &arbev1.AddPushDeviceRequest{
		Endpoint: r.PostFormValue("endpoint"), P256Dh: r.PostFormValue("p256dh"), Auth: r.PostFormValue("auth"), UserAgent: clip(r.UserAgent(), 500),
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/notifications", http.StatusSeeOther)
	return nil
}

func (a *app) removeDevice(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	if _, err := a.services.notifications.RemovePushDevice(r.Context(), &arbev1.RemovePushDeviceRequest{Id: r.PostFormValue("device")}); err != nil {
		return err
	}
	http.Redirect(w, r, "/notifications", http.StatusSeeOther)
	return nil
}

// serviceWorker serves the script that shows notifications. Its address is fixed, because browsers identify the worker by it.
func serviceWorker(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	file := static().named("sw.js")
	send(w, r, http.StatusOK, file.plain, file.packed)
}

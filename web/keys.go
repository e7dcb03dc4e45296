package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/guard"
)

// keyExpiry returns the expiry of a key that is created now and lasts a number of days, or nil for noEnd. For any other text
// it returns [fault.Invalid].
func keyExpiry(days string) (*timestamppb.Timestamp, error) {
	if days == noEnd {
		return nil, nil
	}
	n, err := strconv.Atoi(days)
	if err != nil || n < 1 || n > maxKeyDays {
		return nil, fault.Newf(fault.Invalid, "choose how long the key works", "days: this is neither a number from 1 to %d nor %q", maxKeyDays, noEnd)
	}
	return timestamppb.New(time.Now().Add(time.Duration(n) * 24 * time.Hour)), nil
}

func (a *app) keys(w http.ResponseWriter, r *http.Request) error {
	v, err := a.keysView(r)
	if err != nil {
		return err
	}
	v.For = r.URL.Query().Get("for")
	return a.show(w, r, http.StatusOK, keysPage(v))
}

func (a *app) keysView(r *http.Request) (keysView, error) {
	v := keysView{Days: "90", NewID: newID(), Holders: map[string]*arbev1.Agent{}}
	house := r.PathValue("house")
	var err error
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	g, ctx := guard.NewGroup(r.Context())
	g.Go(func() error {
		members, err := a.everyMember(ctx, house)
		for _, m := range members {
			v.Holders[m.Agent.Id] = m.Agent
			if m.Agent.Kind == "bot" {
				v.Bots = append(v.Bots, m.Agent)
			}
		}
		return err
	})
	g.Go(func() error {
		res, err := a.services.credentials.ListAPIKeys(ctx, &arbev1.ListAPIKeysRequest{HouseId: house, PageSize: 200, PageToken: r.URL.Query().Get("page")})
		for _, k := range res.GetApiKeys() {
			if keyEnd(k) == "" {
				v.Keys = append(v.Keys, k)
			} else {
				v.Ended = append(v.Ended, k)
			}
		}
		v.More = res.GetNextPageToken()
		return err
	})
	return v, g.Wait()
}

// createKey makes an API key and answers with the page that shows it. It does not redirect, because the key is shown only
// once.
func (a *app) createKey(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	req := &arbev1.CreateAPIKeyRequest{
		HouseId: r.PathValue("house"), Id: r.PostFormValue("id"), Name: strings.TrimSpace(r.PostFormValue("name")), AgentId: r.PostFormValue("for"),
	}
	days := r.PostFormValue("days")
	var made *arbev1.CreateAPIKeyResponse
	var failed error
	if req.ExpiresAt, failed = keyExpiry(days); failed == nil {
		made, failed = a.services.credentials.CreateAPIKey(r.Context(), req)
	}
	status, wrong := http.StatusOK, problems(nil)
	if failed != nil {
		var err error
		if wrong, err = problemsOf(failed, "name", "for", "days"); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	v, err := a.keysView(r)
	if err != nil {
		return err
	}
	if failed != nil {
		v.Name, v.For, v.Days, v.Problems = req.Name, req.AgentId, days, wrong
	} else {
		v.Key = made.Key
	}
	shownOnce(w)
	return a.show(w, r, status, keysPage(v))
}

// revokeKey revokes an API key. A missing key is not an error, so that the form may be sent twice.
func (a *app) revokeKey(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.credentials.RevokeAPIKey(r.Context(), &arbev1.RevokeAPIKeyRequest{Id: r.PathValue("key")})
	if err != nil && faultOf(err).Code != fault.NotFound {
		return err
	}
	http.Redirect(w, r, settingsPath(r.PathValue("house"), "keys"), http.StatusSeeOther)
	return nil
}

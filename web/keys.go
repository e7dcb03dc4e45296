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

// keysView is the page of a house's API keys.
type keysView struct {
	Layout layout
	// Keys are the valid keys, Ended the expired and revoked ones.
	Keys, Ended []*arbev1.APIKey
	// Holders are the people and bots of the house by id, Bots those for whom an owner may create a key.
	Holders map[string]*arbev1.Agent
	Bots    []*arbev1.Agent
	// More is the token of the next page of keys; empty on the last page.
	More string
	// Key is a key that has just been made, which is shown only this once.
	Key string
	// NewID is the id of the key that the form makes, so that sending the form twice makes one key.
	NewID string
	// Name, For and Days are the form's values, Problems its errors.
	Name, For, Days string
	Problems        problems
}

// keyDays are how long a key may last, in days, as the form offers them. A key without an end has to be chosen by its own
// value, so that a form that lacks the field does not make one.
var keyDays = []struct{ Days, Word string }{{"30", "30 days"}, {"90", "90 days"}, {"365", "a year"}, {noEnd, "until it is revoked"}}

const (
	// noEnd is the choice of a key that is valid until it is revoked.
	noEnd = "never"
	// maxKeyDays is the longest other choice.
	maxKeyDays = 36500
)

// keyExpiry returns when a key ends that is made now and lasts for a number of days; nil for noEnd. Any other text is
// [fault.Invalid].
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

// holder returns the name of the person or bot that a key belongs to.
func (v keysView) holder(k *arbev1.APIKey) string { return v.nameOf(k.AgentId) }

// maker returns the name of the owner who created a key for a bot; empty if its holder did.
func (v keysView) maker(k *arbev1.APIKey) string {
	switch k.CreatedBy {
	case k.AgentId:
		return ""
	case "":
		return "somebody" // from before it was recorded
	}
	return v.nameOf(k.CreatedBy)
}

func (v keysView) nameOf(agent string) string {
	if a := v.Holders[agent]; a != nil {
		return accountName(a)
	}
	return formerMember
}

// mayRevoke reports whether the reader may revoke a key.
func (v keysView) mayRevoke(k *arbev1.APIKey) bool {
	return v.Layout.isOwner() || k.AgentId == v.Layout.Me.Id
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

// keyEnd says why a key is no longer valid; empty if it is.
func keyEnd(k *arbev1.APIKey) string {
	switch {
	case k.RevokedAt != nil:
		return "Revoked " + day(when(k.RevokedAt))
	case k.ExpiresAt != nil && !when(k.ExpiresAt).After(time.Now()):
		return "Expired " + day(when(k.ExpiresAt))
	}
	return ""
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

// revokeKey revokes an API key. One that is gone is no error, so that the form may be sent twice.
func (a *app) revokeKey(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.credentials.RevokeAPIKey(r.Context(), &arbev1.RevokeAPIKeyRequest{Id: r.PathValue("key")})
	if err != nil && faultOf(err).Code != fault.NotFound {
		return err
	}
	http.Redirect(w, r, settingsPath(r.PathValue("house"), "keys"), http.StatusSeeOther)
	return nil
}

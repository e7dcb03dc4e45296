package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// members shows the members of a house, and its invites to owners.
func (a *app) members(w http.ResponseWriter, r *http.Request) error {
	v, err := a.membersView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, membersPage(v))
}

func (a *app) membersView(r *http.Request) (membersView, error) {
	v := membersView{Role: "member", Days: "7"}
	house := r.PathValue("house")
	var err error
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	members, err := a.everyMember(r.Context(), house)
	if err != nil {
		return v, err
	}
	for _, m := range members {
		if m.Agent.Kind != "bot" {
			v.People = append(v.People, m)
		}
	}
	if v.Layout.isOwner() {
		res, err := a.services.houses.ListInvites(r.Context(), &arbev1.ListInvitesRequest{HouseId: house, PageSize: 200})
		if err != nil {
			return v, err
		}
		v.Invites = res.Invites
	}
	return v, nil
}

// invite makes an invite and answers with the page that shows its link. It does not redirect, because the link is shown only
// once.
func (a *app) invite(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	note, role, days := strings.TrimSpace(r.PostFormValue("note")), r.PostFormValue("role"), r.PostFormValue("days")
	req := &arbev1.CreateInviteRequest{HouseId: r.PathValue("house"), Role: role, Note: note}
	if n, err := strconv.Atoi(days); err == nil {
		req.ExpiresIn = durationpb.New(time.Duration(min(max(n, 0), 1000)) * 24 * time.Hour)
	}
	made, failed := a.services.houses.CreateInvite(r.Context(), req)
	status, wrong := http.StatusOK, problems(nil)
	if failed != nil {
		var err error
		if wrong, err = problemsOf(failed, "note", "role", "days"); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	v, err := a.membersView(r)
	if err != nil {
		return err
	}
	if failed != nil {
		v.Note, v.Role, v.Days, v.Problems = note, role, days, wrong
	} else {
		v.Link, v.Made = a.addressOf(r, made.Path), made.Invite
	}
	shownOnce(w)
	return a.show(w, r, status, membersPage(v))
}

// revokeInvite revokes an invite. A missing invite is no error, so that the form may be sent twice.
func (a *app) revokeInvite(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	_, err := a.services.houses.RevokeInvite(r.Context(), &arbev1.RevokeInviteRequest{HouseId: house, Id: r.PathValue("invite")})
	if err != nil && faultOf(err).Code != fault.NotFound {
		return err
	}
	http.Redirect(w, r, settingsPath(house, "members"), http.StatusSeeOther)
	return nil
}

func (a *app) changeMember(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	_, err := a.services.houses.UpdateMember(r.Context(), &arbev1.UpdateMemberRequest{HouseId: house, AgentId: r.PathValue("agent"), Etag: r.PostFormValue("etag"), Role: r.PostFormValue("role")})
	if err != nil {
		return err
	}
	http.Redirect(w, r, settingsPath(house, "members"), http.StatusSeeOther)
	return nil
}

// removeMember removes a person or a bot. A person who removes themselves is redirected to their other houses. A member who
// has already left is not an error, so that the form may be sent twice.
func (a *app) removeMember(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, agent := r.PathValue("house"), r.PathValue("agent")
	_, err := a.services.houses.RemoveMember(r.Context(), &arbev1.RemoveMemberRequest{HouseId: house, AgentId: agent})
	if err != nil && faultOf(err).Code != fault.NotFound {
		return err
	}
	back := settingsPath(house, "members")
	switch r.PostFormValue("from") {
	case "bots":
		back = settingsPath(house, "bots")
	case "self":
		forget(w)
		back = "/"
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
	return nil
}

// join describes an invite and asks whether to join. It does not use up the invite, because chats and mail filters open links
// to preview them.
func (a *app) join(w http.ResponseWriter, r *http.Request) error {
	keepToken(w)
	v, err := a.invitation(r, r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, joinPage(v))
}

func (a *app) invitation(r *http.Request, token string) (invitation, error) {
	v := invitation{Theme: a.themeOf(r), Token: token}
	res, err := a.services.houses.GetInvite(r.Context(), &arbev1.GetInviteRequest{Token: token})
	if err != nil {
		return v, unusableInvite(err)
	}
	v.For, v.Me = res, a.whoIs(r)
	return v, nil
}

// unusableInvite converts the error of an unusable invite. The error is not about the reader's login, so it must not redirect
// to the login page.
func unusableInvite(err error) error {
	const next = "ask an owner of the house for a new link"
	switch f := faultOf(err); f.Code {
	case fault.Unauthenticated:
		return fault.New(fault.NotFound, f.Message, next)
	case fault.Invalid:
		return fault.New(fault.NotFound, "this is not the link of an invite", next)
	}
	return err
}

// accept joins the house as the person whom the page named, or as a new person, whom it then logs in.
func (a *app) accept(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	keepToken(w)
	v, err := a.invitation(r, r.PostFormValue("token"))
	if err != nil {
		return err
	}
	if v.Me.GetId() != r.PostFormValue("as") { // somebody has logged in or out since: ask again
		return a.show(w, r, http.StatusOK, joinPage(v))
	}
	ctx, req := r.Context(), &arbev1.AcceptInviteRequest{Token: v.Token}
	if v.Me != nil {
		ctx = withSession(ctx, a.sessionOf(r))
	} else {
		v.Name = strings.TrimSpace(r.PostFormValue("name"))
		req.Name = v.Name
	}
	res, err := a.services.houses.AcceptInvite(ctx, req)
	if f := faultOf(err); err != nil && f.Code == fault.Invalid {
		if v.Problems, err = problemsOf(err, "name"); err != nil {
			return err
		}
		return a.show(w, r, f.Code.HTTPStatus(), joinPage(v))
	} else if err != nil {
		return unusableInvite(err)
	}
	if res.Session != "" {
		forget(w)
		http.SetCookie(w, a.cookie(sessionCookie, res.Session, res.SessionExpiresAt.AsTime()))
	}
	http.Redirect(w, r, housePath(res.House.Id), http.StatusSeeOther)
	return nil
}

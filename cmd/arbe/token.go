package main

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// showToken prints only the token, unless --json asks for more.
func (a *app) showToken(t *arbev1.ThreadToken) error {
	view := tokenView{
		Token: t.GetToken(), ThreadID: t.GetThreadId(), AgentID: t.GetAgentId(), Scopes: t.GetScopes(), ExpiresAt: t.GetExpiresAt().AsTime(),
	}
	if err := a.show(view.Token, view, func() string { return view.Token }); err != nil {
		return err
	}
	a.say("it is valid for thread %s until %s", view.ThreadID, view.ExpiresAt.Local().Format("15:04"))
	return nil
}

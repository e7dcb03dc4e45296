package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// deviceView is the page that approves the login of a program.
type deviceView struct {
	Theme string
	// Code is the code as the reader typed it, and Problems says what is wrong with it.
	Code     string
	Problems problems
	// Login is the login with the code; nil before there is one. Answer is what the reader has answered, if anything.
	Login  *arbev1.DeviceLogin
	Answer arbev1.Verdict
	Me     *arbev1.Agent
}

func (v deviceView) approved() bool { return v.Answer == arbev1.Verdict_VERDICT_APPROVE }
func (v deviceView) denied() bool   { return v.Answer == arbev1.Verdict_VERDICT_DENY }

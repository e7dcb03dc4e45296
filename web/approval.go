package web

import (
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// otherAnswer returns the hint of the field for an answer.
func otherAnswer(v transcript.ApprovalAnswer) string {
	if len(v.Options) > 0 {
		return "Another answer"
	}
	return "Your answer"
}

// answerApproval answers a bot's request for approval.
func (a *app) answerApproval(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	verdict := map[string]arbev1.Verdict{"approve": arbev1.Verdict_VERDICT_APPROVE, "deny": arbev1.Verdict_VERDICT_DENY}[r.PostFormValue("verdict")]
	if verdict == arbev1.Verdict_VERDICT_UNSPECIFIED {
		return fault.New(fault.Invalid, "the form says neither yes nor no", "use the buttons")
	}
	_, err := a.services.approvals.AnswerApproval(r.Context(), &arbev1.AnswerApprovalRequest{
		ThreadId: r.PathValue("thread"), Id: r.PathValue("approval"), Verdict: verdict, Reason: r.PostFormValue("reason"),
	})
	return a.doneInThread(w, r, err)
}

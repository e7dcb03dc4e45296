package fault_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
)

func TestNextStepsForPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code       fault.Code
		next, want string
	}{
		{fault.NotFound, "list the threads with: arbe thread list", "list the threads"},
		{fault.Precondition, "make one with: arbe house create NAME, or ask an owner of one to invite you", "make one, or ask an owner of one to invite you"},
		{fault.Exhausted, "delete sandboxes that are not needed (arbe sandbox list shows them), or ask the operator", "delete sandboxes that are not needed, or ask the operator"},
		{fault.Exhausted, "wait until midnight UTC; the command is: arbe house limit 1 --house h", "wait until midnight UTC"},
		{fault.Precondition, "paste a key under Settings, Models; or run: arbe secret set NAME", "paste a key under Settings, Models"},
		{fault.Precondition, "run: arbe secret set NAME; or use another model", "use another model"},
		{fault.Precondition, "run: arbe secret set NAME", "change what the message names, and try again"},
		{fault.NotFound, "arbe bot list shows them", "list what exists, and name one of those"},
		{fault.Invalid, "use --no-check", "correct the request"},
		{fault.Invalid, "use gpt; arbe model list shows all; to use it although it is not listed: --no-check, or skip_check", "use gpt; to use it although it is not listed: skip_check"},
		{fault.Unauthenticated, "arbe login makes one", "send a credential that is valid"},
		{fault.Unavailable, "try again", "try again"},
	} {
		failed := fault.New(c.code, "it failed", c.next)
		for agent, want := range map[string]string{"arbe-cli/v1.2.3 connect-go/1.21.1 (go1.26)": c.next, "arbe-go/v1.2.3": c.want, "curl/8": c.want, "": c.want} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("User-Agent", agent)
			if got := failed.BodyFor(r).Next; got != want {
				t.Errorf("%q becomes %q for %q, want %q", c.next, got, agent, want)
			}
		}
	}
}

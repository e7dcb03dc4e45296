package rpc

import (
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
		{fault.Invalid, "use --no-check", correct},
		{fault.Invalid, "use gpt; arbe model list shows all; to use it although it is not listed: --no-check, or skip_check", "use gpt; to use it although it is not listed: skip_check"},
		{fault.Unauthenticated, "arbe login makes one", "send a credential that is valid"},
		{fault.Unavailable, "try again", "try again"},
	} {
		if got := nextFor(t.Context(), fault.New(c.code, "it failed", c.next)); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.next, got, c.want)
		}
	}
}

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
)

// codes are all codes, with their HTTP statuses and exit codes.
var codes = []struct {
	code fault.Code
	http int
	exit int
}{
	{fault.Invalid, http.StatusBadRequest, 2},
	{fault.Unauthenticated, http.StatusUnauthorized, 4},
	{fault.Forbidden, http.StatusForbidden, 5},
	{fault.NotFound, http.StatusNotFound, 3},
	{fault.Exists, http.StatusConflict, 6},
	{fault.Precondition, http.StatusPreconditionFailed, 6},
	{fault.Aborted, http.StatusConflict, 6},
	{fault.OutOfRange, http.StatusRequestedRangeNotSatisfiable, 2},
	{fault.Exhausted, http.StatusTooManyRequests, 8},
	{fault.Unavailable, http.StatusServiceUnavailable, 7},
	{fault.Unimplemented, http.StatusNotImplemented, 1},
	{fault.Canceled, 499, 1},
	{fault.DeadlineExceeded, http.StatusGatewayTimeout, 7},
	{fault.Internal, http.StatusInternalServerError, 1},
	{"a code of a later version", http.StatusInternalServerError, 1},
}

func TestCode(t *testing.T) {
	t.Parallel()
	for _, c := range codes {
		t.Run(string(c.code), func(t *testing.T) {
			if c.code.HTTPStatus() != c.http || c.code.ExitCode() != c.exit {
				t.Errorf("it is status %d and exit code %d, want %d and %d", c.code.HTTPStatus(), c.code.ExitCode(), c.http, c.exit)
			}
		})
	}
	t.Run("has Connect's name", func(t *testing.T) {
		for _, c := range codes[:len(codes)-1] {
			var code connect.Code
			if err := code.UnmarshalText([]byte(c.code)); err != nil || code.String() != string(c.code) {
				t.Errorf("%s is not a code of Connect: %v", c.code, err)
			}
		}
	})
}

func TestError(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp 10.0.0.1: hunter2")
	plain := fault.Newf(fault.NotFound, "list them", "there is no %s %q", "thread", "x")
	caused := plain.Because(cause)

	t.Run("says what went wrong and what to do next", func(t *testing.T) {
		if got := plain.Error(); got != `there is no thread "x"; list them` {
			t.Errorf("it says %q", got)
		}
		if got := fault.New(fault.NotFound, "gone", "").Error(); got != "gone" {
			t.Errorf("without a next step it says %q", got)
		}
	})
	t.Run("shows its cause to the log and to errors.Is, never to people", func(t *testing.T) {
		if strings.Contains(caused.Error(), "hunter2") || !strings.Contains(caused.Detail(), "hunter2") || !errors.Is(caused, cause) {
			t.Errorf("it says %q, and in detail %q", caused.Error(), caused.Detail())
		}
		if plain.Detail() != plain.Error() || errors.Is(plain, cause) {
			t.Error("the original was changed")
		}
	})
	t.Run("is found in an error that wraps it", func(t *testing.T) {
		wrapped := fmt.Errorf("listing: %w", caused)
		if fault.From(wrapped) != caused || fault.CodeOf(wrapped) != fault.NotFound {
			t.Errorf("it becomes %v", fault.From(wrapped))
		}
	})
}

func TestFrom(t *testing.T) {
	t.Parallel()
	t.Run("nil is nil", func(t *testing.T) {
		if fault.From(nil) != nil || fault.CodeOf(nil) != "" {
			t.Errorf("it is %v", fault.From(nil))
		}
	})
	t.Run("the end of a context gives its own code", func(t *testing.T) {
		for err, code := range map[error]fault.Code{context.Canceled: fault.Canceled, context.DeadlineExceeded: fault.DeadlineExceeded} {
			got := fault.From(fmt.Errorf("reading: %w", err))
			if got.Code != code || got.Next == "" || !errors.Is(got, err) {
				t.Errorf("%v becomes %v", err, got)
			}
		}
	})
	t.Run("a fault that was caused by the end of a context is unchanged", func(t *testing.T) {
		if got := fault.From(fault.New(fault.Unavailable, "the database is away", "wait").Because(context.Canceled)); got.Code != fault.Unavailable {
			t.Errorf("it becomes %v", got)
		}
	})
	t.Run("anything else is internal: hidden, with a reference", func(t *testing.T) {
		one, two := fault.From(errors.New("hunter2")), fault.From(errors.New("hunter2"))
		if one.Code != fault.Internal || strings.Contains(one.Error(), "hunter2") || one.Next == "" {
			t.Errorf("it says %q", one.Error())
		}
		if one.Reference == "" || one.Reference == two.Reference || !strings.Contains(one.Error(), one.Reference) || !strings.Contains(one.Detail(), one.Reference) {
			t.Errorf("the references are %q and %q", one.Reference, two.Reference)
		}
	})
}

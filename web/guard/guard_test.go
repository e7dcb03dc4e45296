package guard_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/arbe-dev/arbe/web/guard"
)

func TestAnAbortedHandlerStaysAborted(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("it panics with %v", p)
		}
	}()
	_ = guard.Run(func() error { panic(http.ErrAbortHandler) })
}

func TestRunKeepsTheError(t *testing.T) {
	t.Parallel()
	want := errors.New("an error")
	if err := guard.Run(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
}

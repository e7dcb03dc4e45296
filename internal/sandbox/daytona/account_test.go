//go:build linux

package daytona_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona"
	"github.com/arbe-dev/arbe/internal/sandbox/daytona/daytonatest"
)

// TestAnotherAccountNamesNoHostOfTheOperator: the owner of an account may choose where its boxes take commands. The server
// connects only to the API's own host and to public addresses.
func TestAnotherAccountNamesNoHostOfTheOperator(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	asked := new(atomic.Int64)
	reached := make(chan struct{}, 100)
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		select {
		case reached <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(internal.Close)
	theirs := func(c *daytona.Config) { *c = daytona.Account.Configure(*c, daytonatest.Key) }
	ref := create(t, open(t, account, theirs), "box") // at the API's own host, though that is private
	account.SetState(ref, "started", map[string]any{"toolboxProxyUrl": internal.URL + "/latest/meta-data"})
	for _, of := range []struct {
		name   string
		driver sandbox.Driver
		asks   bool
	}{{"the house's", open(t, account, theirs), false}, {"the operator's", open(t, account), true}} {
		asked.Store(0)
		within := time.Second
		if of.asks { // its caller leaves when the host was asked
			within = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		go func() {
			select {
			case <-reached:
				cancel()
			case <-ctx.Done():
			}
		}()
		begin := time.Now()
		_, err := of.driver.Exec(ctx, ref, sandbox.Command{Argv: []string{"true"}})
		cancel()
		if waited := time.Since(begin); waited > 2*time.Minute {
			t.Errorf("%s account: its caller left, and Exec waited %v for a command that was never sent", of.name, waited)
		}
		if err == nil || (asked.Load() > 0) != of.asks {
			t.Errorf("%s account: the server asked the host %d times, %v", of.name, asked.Load(), err)
		}
	}
}

// TestAnAccountOfItsOwn: its region, snapshot and limits are not the operator's.
func TestAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	account := daytonatest.New(t)
	account.SetKey("dtn_theirs", "theirs")
	operator := daytona.Config{APIKey: daytonatest.Key, URL: account.URL, Snapshot: "operators", Target: "operators", PerHouse: 1}
	theirs := open(t, account, func(c *daytona.Config) { *c = daytona.Account.Configure(operator, "dtn_theirs") })
	for _, id := range []string{"one", "two"} {
		if snapshot := account.Field(create(t, theirs, id), "snapshot"); snapshot != "" {
			t.Errorf("the box is made from the snapshot %v", snapshot)
		}
	}
	ours := open(t, account, func(c *daytona.Config) { *c = operator })
	create(t, ours, "one")
	_, err := ours.Create(t.Context(), sandbox.Spec{ID: "two", Labels: sandbox.Labels{Installation: "here", House: "house"}})
	wantCode(t, err, fault.Exhausted)
}

package server_test

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/secret"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Access that one server revokes ends on the other server too, even if that server receives no notification.
func TestARevocationReachesEveryServer(t *testing.T) {
	t.Parallel()
	url := dbtest.Migrated(t)
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, b := settings(t), settings(t)
	a.DatabaseURL, a.SecretKey, b.SecretKey = url, key, key
	start(t, a)
	proxy := dbtest.NewProxy(t, url)
	b.DatabaseURL = proxy.URL
	there := start(t, b).URL()
	here := client(t, a)
	var bots atomic.Int64
	homes, err := here.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	const listener = "arbe permission"
	// Without the notification, the other server learns of the revocation within a second. The rest is for a slow machine.
	const within = 21 * time.Second
	// These are the answers of the stream door and of the services after the revocation. A caller outside a house gets "not
	// found" for its threads, because "forbidden" would reveal that they exist.
	answers := map[string]struct {
		status []int
		code   []connect.Code
	}{
		"a key":                         {[]int{http.StatusUnauthorized}, []connect.Code{connect.CodeUnauthenticated}},
		"a thread's token":              {[]int{http.StatusUnauthorized}, []connect.Code{connect.CodeUnauthenticated}},
		"a key whose thread is deleted": {[]int{http.StatusNotFound}, []connect.Code{connect.CodeNotFound}},
		"a bot's key whose bot is removed": { // the key may be known slightly longer than the membership
			[]int{http.StatusUnauthorized, http.StatusNotFound}, []connect.Code{connect.CodeUnauthenticated, connect.CodeNotFound},
		},
		"a key whose holder leaves the house": {[]int{http.StatusNotFound}, []connect.Code{connect.CodeNotFound}},
	}
	for trouble, cause := range map[string]func(){
		"nothing happens":                    func() {},
		"its listening connection is silent": func() { proxy.Silence(t, listener) },
		"its listening connection is cut":    func() { proxy.Cut(listener) },
	} {
		for what, give := range map[string]func(thread *string) (credential string, revoke func()){
			"a key": func(*string) (string, func()) {
				made, err := here.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: house, Name: "test"})
				if err != nil {
					t.Fatal(err)
				}
				return made.Key, func() {
					if _, err := here.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: made.ApiKey.Id}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a thread's token": func(thread *string) (string, func()) {
				made, err := here.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: *thread})
				if err != nil {
					t.Fatal(err)
				}
				return made.Token.Token, func() {
					if _, err := here.Credentials.RevokeThreadTokens(t.Context(), &arbev1.RevokeThreadTokensRequest{ThreadId: *thread}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a bot's key whose bot is removed": func(*string) (string, func()) {
				bot, err := here.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: house, Name: "bot" + strconv.Itoa(int(bots.Add(1))), Runtime: "pi"})
				if err != nil {
					t.Fatal(err)
				}
				made, err := here.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: house, AgentId: bot.Agent.Id, Name: "test"})
				if err != nil {
					t.Fatal(err)
				}
				return made.Key, func() {
					if _, err := here.Houses.RemoveMember(t.Context(), &arbev1.RemoveMemberRequest{HouseId: house, AgentId: bot.Agent.Id}); err != nil {
						t.Fatal(err)
					}
				}
			},
			// Use a separate house, because the key's other houses remain.
			"a key whose holder leaves the house": func(thread *string) (string, func()) {
				left, err := here.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: "Left"})
				if err != nil {
					t.Fatal(err)
				}
				made, err := here.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: left.House.Id})
				if err != nil {
					t.Fatal(err)
				}
				*thread = made.Thread.Id
				return login(t, b).Token, func() {
					conn, err := pgx.Connect(t.Context(), url)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close(t.Context())
					// The last owner of a house cannot leave through the services.
					if _, err := conn.Exec(t.Context(), "delete from members where house_id = $1", left.House.Id); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a key whose thread is deleted": func(thread *string) (string, func()) {
				return login(t, b).Token, func() {
					if _, err := here.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: *thread}); err != nil {
						t.Fatal(err)
					}
				}
			},
		} {
			t.Run(what+", when "+trouble, func(t *testing.T) {
				thread := newThread(t, here)
				credential, revoke := give(&thread)
				c := arbe.New(there, credential)
				get := func(query string) *http.Response {
					req, err := http.NewRequestWithContext(t.Context(), "GET", there+"/api/stream/arbe-thread-"+thread+query, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Authorization", "Bearer "+credential)
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { res.Body.Close() })
					return res
				}
				tail, err := c.Entries.Tail(t.Context(), &arbev1.TailRequest{ThreadId: thread})
				if err != nil || !tail.Receive() {
					t.Fatalf("no tail: %v", err)
				}
				defer tail.Close()
				sse := get("?live=sse&offset=-1")
				if sse.StatusCode != http.StatusOK {
					t.Fatalf("following answers %d", sse.StatusCode)
				}
				cause()
				revoke()
				revoked := time.Now()
				status := get("?offset=-1").StatusCode
				for ; status < 400; status = get("?offset=-1").StatusCode {
					if time.Since(revoked) > within {
						t.Fatal("the stream stays open")
					}
				}
				if want := answers[what].status; !slices.Contains(want, status) {
					t.Errorf("the stream door answers %d, want %v", status, want)
				}
				for {
					_, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
					if err == nil && time.Since(revoked) < within {
						continue
					}
					if code, want := connect.CodeOf(err), answers[what].code; err == nil || !slices.Contains(want, code) {
						t.Fatalf("the services answer %v, want %v", err, want)
					}
					break
				}
				for tail.Receive() {
				}
				if code, want := connect.CodeOf(tail.Err()), answers[what].code; tail.Err() == nil || !slices.Contains(want, code) {
					t.Errorf("the tail ended with %v, want %v", tail.Err(), want)
				}
				_, _ = io.Copy(io.Discard, sse.Body) // until the stream ends
				if took := time.Since(revoked); took > within {
					t.Errorf("it took %v until everything had ended", took)
				}
			})
		}
	}
}

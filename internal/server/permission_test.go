package server_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/secret"
	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// What one server revokes ends on the other one too, even if that receives no notification.
func TestARevocationReachesEveryServer(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t)
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
	homes, err := here.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const listener = "arbe permission"
	for trouble, cause := range map[string]func(){
		"nothing happens":                    func() {},
		"its listening connection is silent": func() { proxy.Silence(t, listener) },
		"its listening connection is cut":    func() { proxy.Cut(listener) },
	} {
		for what, give := range map[string]func(thread string) (credential string, revoke func()){
			"a key": func(string) (string, func()) {
				made, err := here.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: homes.Houses[0].Id, Name: "test"})
				if err != nil {
					t.Fatal(err)
				}
				return made.Key, func() {
					if _, err := here.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: made.ApiKey.Id}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a thread's token": func(thread string) (string, func()) {
				made, err := here.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: thread})
				if err != nil {
					t.Fatal(err)
				}
				return made.Token.Token, func() {
					if _, err := here.Credentials.RevokeThreadTokens(t.Context(), &arbev1.RevokeThreadTokensRequest{ThreadId: thread}); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a key whose thread is deleted": func(thread string) (string, func()) {
				return login(t, b).Token, func() {
					if _, err := here.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: thread}); err != nil {
						t.Fatal(err)
					}
				}
			},
		} {
			t.Run(what+", when "+trouble, func(t *testing.T) {
				thread := newThread(t, here)
				credential, revoke := give(thread)
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
				deadline := time.Now().Add(time.Minute)
				for get("?offset=-1").StatusCode < 400 {
					if time.Now().After(deadline) {
						t.Fatal("the stream is open for ever")
					}
				}
				for {
					_, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
					if code := connect.CodeOf(err); err != nil && (code == connect.CodeUnauthenticated || code == connect.CodeNotFound) {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("the services are open for ever: %v", err)
					}
				}
				for tail.Receive() {
				}
				if tail.Err() == nil {
					t.Error("the tail ended well")
				}
				_, _ = io.Copy(io.Discard, sse.Body) // until it ends
			})
		}
	}
}

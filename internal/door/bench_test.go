package door_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/arbe-dev/arbe/internal/auth/authtest"
)

// BenchmarkAppend measures one append after the other to a thread's stream, by a key and by a token.
func BenchmarkAppend(b *testing.B) {
	w := newWorld(b)
	cast := authtest.New(b, w.Database, w.auth)
	thread := cast.Thread(b, cast.House)
	for name, principal := range map[string]string{"key": "house-key", "token": "token"} {
		for _, credential := range cast.Credentials(b, principal) {
			token := "Authorization: Bearer " + credential(b, thread)
			b.Run(name, func(b *testing.B) {
				n := 0
				for b.Loop() {
					n++
					body := fmt.Sprintf(`{"id":"%s-%d-%d","payload":{"type":"chat","text":"hello"}}`, name, b.N, n)
					res, err := http.DefaultClient.Do(w.request(w.url, "POST", "arbe-thread-"+thread, body, token, asJSON))
					if err != nil {
						b.Fatal(err)
					}
					text, _ := io.ReadAll(res.Body)
					if res.Body.Close(); res.StatusCode/100 != 2 {
						b.Fatalf("it answers %d: %s", res.StatusCode, text)
					}
				}
			})
		}
	}
}

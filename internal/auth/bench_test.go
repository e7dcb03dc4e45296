package auth_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
)

// BenchmarkAuthorize measures who and whether, for one request about a thread: a key takes two round trips to
// the database, a token one.
func BenchmarkAuthorize(b *testing.B) {
	d := dbtest.New(b)
	a := auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer})
	cast := authtest.New(b, d, a)
	thread := cast.Thread(b, cast.House)
	for name, principal := range map[string]string{"key": "house-key", "token": "token"} {
		for _, credential := range cast.Credentials(b, principal) {
			token := credential(b, thread)
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					p, err := a.Authenticate(b.Context(), token)
					if err == nil {
						_, err = a.May(p.With(b.Context()), auth.Say, auth.Thread(thread))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRecheck measures asking again about 10,000 readers with 1,000 credentials, and what each of them keeps
// in memory meanwhile.
func BenchmarkRecheck(b *testing.B) {
	d := dbtest.New(b)
	a := auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer, Recheck: time.Hour})
	cast := authtest.New(b, d, a)
	const readers = 10_000
	for _, kind := range []string{"keys", "tokens"} {
		b.Run(fmt.Sprint(readers, "_", kind), func(b *testing.B) {
			var principals []auth.Principal
			var threads []string
			for range readers / 10 { // ten readers show each, as tabs do
				thread := cast.Thread(b, cast.House)
				token := cast.Token(b, thread)
				if kind == "keys" {
					key, _, err := a.CreateKey(b.Context(), db.Scope{House: cast.House, Agent: cast.Member}, auth.KeyDraft{Agent: cast.Member, Name: "reader"})
					must(b, err)
					token = key
				}
				p, err := a.Authenticate(b.Context(), token)
				must(b, err)
				principals, threads = append(principals, p), append(threads, thread)
			}
			before := memory()
			var dones []func()
			for i := range readers {
				n := i % len(principals)
				_, done := a.While(principals[n].With(b.Context()), auth.Read, auth.Thread(threads[n]))
				dones = append(dones, done)
			}
			kept := memory() - before
			for b.Loop() {
				a.AskAgain()
			}
			b.ReportMetric(float64(kept)/readers, "B/reader")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/round")
			for _, done := range dones {
				done()
			}
		})
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

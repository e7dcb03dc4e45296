package auth_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
)

// BenchmarkAuthorize measures authenticating and authorizing one request about a thread: by asking the database (a key
// takes two round trips, a token one), and from memory.
func BenchmarkAuthorize(b *testing.B) {
	d := dbtest.New(b)
	asking := auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer})
	knowing := (&bench{Database: d}).listening(b, d.DB)
	cast := authtest.New(b, d, asking)
	thread := cast.Thread(b, cast.House)
	for name, principal := range map[string]string{"key": "house-key", "token": "token"} {
		for _, credential := range cast.Credentials(b, principal) {
			token := credential(b, thread)
			for how, a := range map[string]*auth.Auth{"asked": asking, "known": knowing} {
				once := func(b *testing.B) {
					p, err := a.Authenticate(b.Context(), token)
					if err == nil {
						_, err = a.Authorize(p.With(b.Context()), auth.Say, auth.Thread(thread))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.Run(name+"/"+how, func(b *testing.B) {
					for b.Loop() {
						once(b)
					}
				})
				b.Run(name+"/"+how+"/parallel", func(b *testing.B) {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							once(b)
						}
					})
				})
			}
		}
	}
}

// BenchmarkRevocation measures the time from the revocation of a key until another server refuses it and ends what is
// read with it: with a notification, and when the notification's connection has fallen silent.
func BenchmarkRevocation(b *testing.B) {
	bench := &bench{Database: dbtest.New(b)}
	bench.auth = bench.listening(b, bench.DB)
	cast := authtest.New(b, bench.Database, bench.auth)
	scope := db.Scope{House: cast.House, Agent: cast.Member}
	for _, silent := range []bool{false, true} {
		b.Run(map[bool]string{false: "notified", true: "silent"}[silent], func(b *testing.B) {
			other, proxy := bench.through(b)
			var refused, ended []time.Duration
			for b.Loop() {
				key, made, err := bench.auth.CreateKey(b.Context(), scope, auth.KeyDraft{Agent: cast.Member, Name: "test"})
				must(b, err)
				until(b, "it listens", other.Holds)
				read := reads(b, other, key, auth.House(cast.House))
				if silent {
					proxy.Silence(b, listener)
				}
				must(b, bench.auth.RevokeKey(b.Context(), scope, made.ID))
				began := time.Now()
				for ; ; time.Sleep(time.Millisecond) {
					if _, err := other.Authenticate(b.Context(), key); err != nil {
						break
					}
				}
				refused = append(refused, time.Since(began))
				<-read.Done()
				ended = append(ended, time.Since(began))
			}
			for name, times := range map[string][]time.Duration{"refused": refused, "ended": ended} {
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Milliseconds()), name+"-p50-ms")
				b.ReportMetric(float64(times[len(times)-1].Milliseconds()), name+"-max-ms")
			}
		})
	}
}

// BenchmarkRecheck measures rechecking 10,000 readers with 1,000 credentials, and the memory that each of them occupies
// meanwhile.
func BenchmarkRecheck(b *testing.B) {
	d := dbtest.New(b)
	a := auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer, Recheck: time.Hour})
	cast := authtest.New(b, d, a)
	const readers = 10_000
	for _, kind := range []string{"keys", "tokens"} {
		b.Run(fmt.Sprint(readers, "_", kind), func(b *testing.B) {
			var principals []auth.Principal
			var threads []string
			for range readers / 10 { // ten readers share each, as browser tabs do
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
				must(b, a.AskAgain(b.Context()))
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

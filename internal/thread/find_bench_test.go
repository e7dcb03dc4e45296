package thread_test

import (
	"slices"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/thread"
)

// BenchmarkFind searches a house with ten thousand threads and a million messages of twelve words. The words are as frequent as
// in a natural language: the first is in more than half of the messages, the last in none or a few.
func BenchmarkFind(b *testing.B) {
	w := setup(b)
	owner := w.Owner(b)
	for _, statement := range []string{
		"insert into streams (house_id, name) select id, 'arbe-thread-thread' || lpad(n::text, 6, '0') from houses, generate_series(1, 10000) n",
		`insert into threads (id, house_id, stream_id, name) select 'thread' || lpad(n::text, 6, '0'), id, 'arbe-thread-thread' || lpad(n::text, 6, '0'), 'thread ' || n from houses, generate_series(1, 10000) n`,
		`create temp table words as select s.house_id, t.id as thread_id, s.id as stream_id, n as seq, now() - random() * interval '100 days' as ts,
			(select array_agg('w' || exp(random() * ln(20000))::int) from generate_series(1, 12 + n * 0) g) as words
			from streams s join threads t on t.house_id = s.house_id and t.stream_id = s.name, generate_series(1, 100) n where s.name like 'arbe-thread-thread%'`,
		`insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
			select stream_id, seq, house_id, 'e' || seq, (select agent_id from members order by role desc limit 1), 'chat', json_build_object('text', array_to_string(words, ' ')), ts from words`,
		"drop index entry_words_search",
		`insert into entry_words (house_id, thread_id, stream_id, seq, ts, words) select house_id, thread_id, stream_id, seq, ts, array_to_tsvector(array[house_word(house_id)] || words) from words`,
		"create index entry_words_search on entry_words using gin (words) with (gin_pending_list_limit = 512)",
		"analyze",
	} {
		if _, err := owner.Exec(b.Context(), statement); err != nil {
			b.Fatalf("%.60s…: %v", statement, err)
		}
	}
	for name, query := range map[string]string{
		"in half of all": "w1", "in many": "w10", "in some": "w300", "in few": "w15000", "two in many": "w3 w7", "many and few": "w2 w12000",
		"none": "nowhere", "many from one": "w4 from:me", "many in one thread": "w1 in:thread000777", "many long ago": "w2 before:" + time.Now().AddDate(0, 0, -90).Format(time.DateOnly),
	} {
		b.Run(name, func(b *testing.B) {
			f, err := thread.ParseFind(query)
			must(b, err)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				found, _, err := w.threads.Find(b.Context(), w.scope, f, 20)
				if err != nil || (len(found) == 0) != (name == "none") {
					b.Fatalf("it finds %d: %v", len(found), err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

package thread

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// MaxSearch is the longest text to search for, in bytes, and maxTerms the most words of it.
	MaxSearch = 1000
	maxTerms  = 20
	// around is how many bytes of an entry's text a snippet has before and after the first word that was searched for.
	around = 120
)

// Found is an entry that a search found.
type Found struct {
	Thread, ThreadName string
	Entry              entry.Entry
	// Snippet is the part of its text around the first word that was searched for, on one line.
	Snippet string
}

// Search returns the latest entries of a house that have all words of a text, or words that begin with them, in any
// order and in any case: chats, commands and their results. An entry is found by the first 64 KiB of its text, usually
// within a second after it was written. [Threads.Unsearchable] says how many are not found yet. A text without words is a
// [fault.Invalid].
func (t *Threads) Search(ctx context.Context, scope db.Scope, text string, limit int) (found []Found, err error) {
	terms := strings.Fields(text)
	switch {
	case len(text) > MaxSearch:
		return nil, fault.Newf(fault.Invalid, "search for fewer words", "a search may have at most %d bytes", MaxSearch)
	case strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) < 0, strings.ContainsRune(text, 0), !utf8.ValidString(text):
		return nil, fault.New(fault.Invalid, "there is no word to search for", "give one or more words")
	case len(terms) > maxTerms:
		return nil, fault.Newf(fault.Invalid, "search for fewer words", "a search may have at most %d words", maxTerms)
	}
	// Quoted, because a word may have characters that are operators.
	quoted := make([]string, len(terms))
	for i, term := range terms {
		quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(term) + "':*"
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		rows, err := t.q.SearchEntries(ctx, tx, strings.Join(quoted, " & "), int32(limit))
		if err != nil {
			return err
		}
		found = make([]Found, len(rows))
		for i, r := range rows {
			e := entry.Entry{Seq: r.Seq, ID: r.ID, Type: r.Type, Author: r.Author, Payload: r.Payload, Time: r.Ts}
			found[i] = Found{Thread: r.ThreadID, ThreadName: r.ThreadName, Entry: e}
			if p, ok := entry.Decode(e); ok {
				found[i].Snippet = snippet(p.Plain(), terms)
			}
		}
		return nil
	})
	return found, err
}

// Unsearchable returns how many entries of a house no search finds yet, because servers are still making them
// searchable: after many were written, or after an upgrade from a version without a search.
func (t *Threads) Unsearchable(ctx context.Context, scope db.Scope) (n int64, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		n, err = t.q.CountUnsearchable(ctx, tx, scope.House)
		return err
	})
	return n, err
}

const (
	// olderEntries is about how many entries one transaction of [Threads.IndexOlder] makes searchable, and olderTime how
	// long it works at most.
	olderEntries = 1000
	olderTime    = 4 * time.Minute
)

// IndexOlder makes entries searchable that were written by a version without a search, for about four minutes or until
// there are none left. It works half of the time, so that it takes little from others. Repeating it is harmless, and so
// is calling it on several servers at once.
func (t *Threads) IndexOlder(ctx context.Context) error {
	for end := time.Now().Add(olderTime); time.Now().Before(end); {
		began := time.Now()
		more := false
		err := t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			// What is lost with the database is done again.
			_, err := tx.Exec(ctx, "set local synchronous_commit = off")
			if err == nil {
				more, err = t.q.IndexOlder(ctx, tx, olderEntries)
			}
			return err
		})
		if err != nil || !more {
			return err
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// snippet returns the part of a text around the first of the terms in it.
func snippet(text string, terms []string) string {
	lower := strings.ToLower(text)
	at := -1
	for _, term := range terms {
		if i := strings.Index(lower, strings.ToLower(term)); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	// Lower case may have another length, so that at is only about where the word is.
	from, to := max(at-around, 0), min(max(at, 0)+2*around, len(text))
	if from > len(text) {
		from = 0
	}
	part := strings.Join(strings.Fields(strings.ToValidUTF8(text[from:max(to, from)], "")), " ")
	if from > 0 {
		part = "…" + part
	}
	if to < len(text) {
		part += "…"
	}
	return part
}

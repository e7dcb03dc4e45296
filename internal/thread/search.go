package thread

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// MaxSearch is the length of the longest search text, in bytes, and maxTerms the largest number of words in it.
	MaxSearch = 1000
	maxTerms  = 20
	// around is how many bytes of text a snippet has before and after the first word that was searched for.
	around = 120
)

// Found is an entry that a search found.
type Found struct {
	Thread, ThreadName string
	Entry              entry.Entry
	AuthorName         string
	// Kind is one of [EntryTypes].
	Kind string
	// Snippet is the part of its text around the first word that was searched for, on one line.
	Snippet string
}

// wordsOf returns a Postgres query for entries that contain all of the terms.
func wordsOf(terms []string) (string, error) {
	text := strings.Join(terms, " ")
	switch {
	case strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) < 0, strings.ContainsRune(text, 0), !utf8.ValidString(text):
		return "", fault.New(fault.Invalid, "there is no word to search for", "give one or more words")
	case len(terms) > maxTerms:
		return "", fault.Newf(fault.Invalid, "search for fewer words", "a search may have at most %d words", maxTerms)
	}
	// Quoted, because a word may have characters that are operators.
	quoted := make([]string, len(terms))
	for i, term := range terms {
		quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(term) + "':*"
	}
	return strings.Join(quoted, " & "), nil
}

// Unsearchable returns how many entries of a house no search finds yet. After many entries were written, servers take
// a while to make them searchable.
func (t *Threads) Unsearchable(ctx context.Context, scope db.Scope) (n int64, err error) {
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		n, err = t.q.CountUnsearchable(ctx, tx, scope.House)
		return err
	})
	return n, err
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
	// Lower case may have another length, so at is only approximate.
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

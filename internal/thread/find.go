package thread

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// MaxFound limits the entries of a search's result, and maxNamed the threads found by name.
	MaxFound, maxNamed = 100, 5
	// findTimeout limits a search in the database. A word that occurs in most of a large house's entries takes long.
	findTimeout = "2s"
	// canceled is the SQLSTATE of a statement that took too long.
	canceled = "57014"
)

// EntryTypes are the types that a search can select.
var EntryTypes = []string{"message", "answer", "command", "output"}

// Find is a search as people write it: words, with filters between them.
type Find struct {
	// Words must all occur in an entry, in any order and case. A word also matches the beginning of a word in the
	// entry.
	Words []string
	// From is an author: a name, a handle, an id, or "me". In is a thread: a name or an id.
	From, In string
	// Types are some of [EntryTypes]; empty for all.
	Types []string
	// Failed selects only the output of failed commands.
	Failed bool
	// After and Before limit when the entry was written; zero for no limit.
	After, Before time.Time
}

// ParseFind reads a search: words, "quoted words", and the filters from: in: type: is:failed after: before:. A word
// that only looks like a filter, such as http://x, is a word.
func ParseFind(text string) (f Find, err error) {
	if len(text) > MaxSearch {
		return f, fault.Newf(fault.Invalid, "search for fewer words", "a search may have at most %d bytes", MaxSearch)
	}
	for _, word := range fieldsOf(text) {
		key, value, filter := strings.Cut(word, ":")
		value = strings.Trim(value, `"`)
		if !filter || !slices.Contains([]string{"from", "in", "type", "is", "after", "before"}, strings.ToLower(key)) {
			f.Words = append(f.Words, strings.Fields(strings.Trim(word, `"`))...)
			continue
		}
		if value == "" {
			return f, fault.Newf(fault.Invalid, "leave no space after the colon, as in from:ann", "%s: it has no value", key)
		}
		if err := f.filter(strings.ToLower(key), value); err != nil {
			return f, err
		}
	}
	return f, nil
}

// filter adds a filter.
func (f *Find) filter(key, value string) error {
	switch key {
	case "from":
		f.From = strings.TrimPrefix(value, "@")
	case "in":
		f.In = value
	case "type":
		if !slices.Contains(EntryTypes, value) {
			return fault.Newf(fault.Invalid, "use one of "+strings.Join(EntryTypes, ", "), "type: there is no type %q", value)
		}
		f.Types = append(f.Types, value)
	case "is":
		if value != "failed" {
			return fault.Newf(fault.Invalid, "use is:failed", "is: %q is unknown", value)
		}
		f.Failed = true
	default:
		day, err := time.Parse(time.DateOnly, value)
		if err != nil {
			return fault.Newf(fault.Invalid, "write a day as 2026-01-31", "%s: %q is not a day", key, value)
		}
		if key == "after" {
			f.After = day
		} else {
			f.Before = day
		}
	}
	return nil
}

// fieldsOf splits a text at spaces that are not between quotes.
func fieldsOf(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return unicode.IsSpace(r) && !quoted
	})
}

// Named is a thread that a search found by its name.
type Named struct{ Thread, Name string }

// Find returns the latest entries of a house that match a search: chats, commands and their results, by the first 64
// KiB of their texts. Usually it finds an entry within a second after it was written; [Threads.Unsearchable] counts
// those that it does not find yet. It also returns the threads whose names contain the search's words as they are
// written. A search without words is a [fault.Invalid]. A search that takes the database more than two seconds is a
// [fault.Exhausted].
func (t *Threads) Find(ctx context.Context, scope db.Scope, f Find, limit int) (found []Found, named []Named, err error) {
	words, err := wordsOf(f.Words)
	if err != nil {
		return nil, nil, err
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local statement_timeout = '"+findTimeout+"'"); err != nil {
			return err
		}
		rows, err := t.q.FindEntries(ctx, tx, query.FindEntriesParams{Words: words, Author: f.From, Thread: f.In, Types: f.Types, Failed: f.Failed,
			After: db.Null(f.After), Before: db.Null(f.Before), Most: int32(min(limit, MaxFound))})
		if err != nil {
			return err
		}
		for _, r := range rows {
			found = append(found, foundIn(r, f.Words))
		}
		if f.From != "" || f.In != "" || f.Failed || len(f.Types) > 0 {
			return nil
		}
		threads, err := t.q.NamedThreads(ctx, tx, scope.House, strings.Join(f.Words, " "), maxNamed)
		for _, r := range threads {
			named = append(named, Named{r.ID, r.Name})
		}
		return err
	})
	if db.State(err) == canceled {
		return nil, nil, fault.New(fault.Exhausted, "the search takes too long, because too many entries have these words", "search for more or longer words, or in one thread with in:").Because(err)
	}
	return found, named, err
}

// foundIn returns an entry that was found, with the part of it that has the words.
func foundIn(r query.FindEntriesRow, words []string) Found {
	e := entry.Entry{Seq: r.Seq, ID: r.ID, Type: r.Type, Author: r.Author, Payload: r.Payload, Time: r.Ts}
	hit := Found{Thread: r.ThreadID, ThreadName: r.ThreadName, Entry: e, AuthorName: r.AuthorName, Kind: kindOf(e, r.AuthorKind)}
	if p, ok := entry.Decode(e); ok {
		hit.Snippet = snippet(p.Plain(), words)
	}
	return hit
}

// kindOf returns the type of an entry among [EntryTypes].
func kindOf(e entry.Entry, author string) string {
	switch {
	case e.Type == entry.Command{}.Type():
		return "command"
	case e.Type == entry.CommandResult{}.Type():
		return "output"
	case author == "bot":
		return "answer"
	}
	return "message"
}

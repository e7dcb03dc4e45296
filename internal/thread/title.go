package thread

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// UntitleTx removes a thread's name if it came from a message that tx deletes. seq is the message's position, and wordings are
// all its texts. The thread is then named like one without a title: a direct message after its agent, a fork after its source, any
// other thread not at all. A name that a person chose stays, unless it is exactly the one that the message would have given.
func (t *Threads) UntitleTx(ctx context.Context, tx pgx.Tx, th Thread, seq int64, wordings []string) error {
	if !slices.ContainsFunc(wordings, th.isTitledBy) {
		return nil
	}
	later, err := t.q.SaidBefore(ctx, tx, query.SaidBeforeParams{HouseID: th.House, Stream: th.StreamID, Seq: seq, People: th.People})
	if err != nil || later {
		return err
	}
	name := ""
	if th.ParentAgent != "" {
		name, err = t.q.NameOfAgent(ctx, tx, th.ParentAgent)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	if th.Origin != nil {
		name = forkName(Thread{ID: th.Origin.Thread, Name: name})
	}
	return t.q.RenameThread(ctx, tx, db.Null(name), th.ID)
}

// isTitledBy reports whether the thread has the name that a first message with this text gives it, or is a fork of a thread that
// had it.
func (t *Thread) isTitledBy(text string) bool {
	for _, title := range []string{entry.Title(text), directTitle(text)} {
		switch words := oneLine(t.Name); {
		case title == "":
		case words == oneLine(title), t.Origin != nil && words == oneLine(forkName(Thread{Name: title})):
			return true
		}
	}
	return false
}

// directOpening matches what the name of a direct message leaves out.
var directOpening = lazyregexp.New(`^(?:\s*@[A-Za-z0-9-]+[\s,:]+)+|^\s*[!$]\s*`)

// directTitle returns the name that a direct message takes from its first message. It must agree with said_text and title_of,
// the database's functions that set the name.
func directTitle(text string) string {
	said := first(oneLine(first(strings.Trim(text, " \t\r\n"), 400)), 160)
	return first(strings.TrimSpace(directOpening.ReplaceAllString(said, "")), 80)
}

// first returns the first n characters of a text.
func first(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n])
	}
	return text
}

// oneLine returns a text with single spaces between its words.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

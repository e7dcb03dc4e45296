package auth

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
)

// Session is a login of a person in a browser or a program.
type Session struct {
	ID string
	// Client is the program, as it calls itself. It must not be trusted.
	Client    string
	CreatedAt time.Time
	// LastUsedAt is zero if the last use is not known.
	LastUsedAt, ExpiresAt time.Time
	// Current reports that p showed this session.
	Current bool
}

// Sessions returns the sessions of p's agent that have not ended, newest first.
func (a *Auth) Sessions(ctx context.Context, p Principal) (list []Session, err error) {
	// The caller's own use may not be recorded yet.
	if err := a.RecordKeyUses(ctx); err != nil {
		return nil, err
	}
	err = a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		rows, err := a.q.ListSessions(ctx, tx, p.hash)
		for _, r := range rows {
			list = append(list, Session{r.ID, r.Client, r.CreatedAt, db.Zero(r.LastUsedAt), r.ExpiresAt, r.Current})
		}
		return err
	})
	return list, err
}

// RevokeSession ends the session of p's agent with an id or, if id is empty, all but the one that p showed. It returns how
// many ended. Their open connections end, too: see [Auth.While].
func (a *Auth) RevokeSession(ctx context.Context, p Principal, id string) (n int64, err error) {
	err = a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		if id != "" {
			n, err = a.q.RevokeSession(ctx, tx, id)
		} else {
			n, err = a.q.RevokeOtherSessions(ctx, tx, p.hash)
		}
		return err
	})
	return n, err
}

// The names of browsers in User-Agent headers, and the names that people use. Most browsers also claim to be others, so names
// that others use come later.
var (
	browsers = [][2]string{{"Edg/", "Edge"}, {"EdgA/", "Edge"}, {"EdgiOS/", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"Firefox/", "Firefox"}, {"HeadlessChrome/", "Chrome"}, {"Chrome/", "Chrome"}, {"CriOS/", "Chrome"}, {"FxiOS/", "Firefox"}, {"Safari/", "Safari"}}
	systems  = [][2]string{{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}
)

// ClientName returns a name for the program that a User-Agent header names: "Firefox on Linux", or the beginning of the header.
func ClientName(header string) string {
	named := func(in [][2]string) string {
		for _, n := range in {
			if strings.Contains(header, n[0]) {
				return n[1]
			}
		}
		return ""
	}
	if browser := named(browsers); browser != "" && strings.HasPrefix(header, "Mozilla/") {
		if system := named(systems); system != "" {
			browser += " on " + system
		}
		return browser
	}
	text := entry.Visible(strings.ToValidUTF8(header, ""), func(rune) string { return "" })
	return string([]rune(text)[:min(len([]rune(text)), 80)])
}

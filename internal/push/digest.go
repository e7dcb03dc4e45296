package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/inbox"
)

const (
	// mailPause is the pause after a mail that could not be sent.
	mailPause = 15 * time.Minute
	// mostInMail limits the threads of a house that a mail lists.
	mostInMail = 25
)

// waiting holds the threads of a house that need a person.
type waiting struct {
	house string
	needs []inbox.Need
}

func (p *Pusher) sweepDigests(ctx context.Context) error {
	if !p.Mail.Enabled() {
		return nil
	}
	rows, err := p.q.ClaimDigests(ctx, p.DB.Pool(), p.Wait.Seconds(), lease.Seconds(), batch)
	if err != nil {
		return db.Explain(err)
	}
	for _, r := range rows {
		if ctx.Err() != nil {
			break
		}
		if err := p.mail(ctx, r); err != nil {
			p.Logger.WarnContext(ctx, "a digest was not sent", "agent", r.AgentID, "error", err)
		}
	}
	return ctx.Err()
}

// mail sends a person the list of what needs them, unless nothing does any more.
func (p *Pusher) mail(ctx context.Context, r query.ClaimDigestsRow) error {
	person := db.Scope{Agent: r.AgentID}
	var s Settings
	var houses []query.HousesOfPersonRow
	err := p.DB.In(ctx, person, func(tx pgx.Tx) (err error) {
		if s, err = p.settingsTx(ctx, tx); err == nil {
			houses, err = p.q.HousesOfPerson(ctx, tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	now := p.Now()
	if ends := s.Quiet.Ends(now); !ends.IsZero() {
		return p.releaseDigest(ctx, person, ends.Sub(now), nil, false)
	}
	list, threads, err := p.pending(ctx, r.AgentID, houses)
	if err != nil {
		return err
	}
	send := threads > 0 && s.Digest != Off
	if send {
		subject, text := p.digest(list, threads)
		if err := p.Mail.send(ctx, r.Email, subject, text, p.URL+"/notifications"); err != nil {
			return errors.Join(err, p.releaseDigest(ctx, person, mailPause, nil, false))
		}
	}
	return p.releaseDigest(ctx, person, 0, &r.Until, send)
}

// pending returns what needs a person in each house, and how many threads that is.
func (p *Pusher) pending(ctx context.Context, agent string, houses []query.HousesOfPersonRow) (list []waiting, threads int, err error) {
	for _, h := range houses {
		needs, err := p.Inboxes.Pending(ctx, db.Scope{House: h.ID, Agent: agent})
		if err != nil {
			return nil, 0, err
		}
		if len(needs) > 0 {
			list = append(list, waiting{title(inbox.Need{Name: h.Name}), needs})
		}
		threads += len(needs)
	}
	return list, threads, nil
}

// releaseDigest ends a sweep's claim of a person, who gets no mail during the pause. Later mails leave out what needed them
// until then.
func (p *Pusher) releaseDigest(ctx context.Context, person db.Scope, pause time.Duration, until *time.Time, mailed bool) error {
	return p.DB.In(ctx, person, func(tx pgx.Tx) error { return p.q.ReleaseDigest(ctx, tx, pause.Seconds(), until, mailed) })
}

// digest returns the subject and the text of a mail.
func (p *Pusher) digest(list []waiting, threads int) (subject, text string) {
	subject = fmt.Sprintf("%d threads need you", threads)
	if threads == 1 {
		subject = "Needs you: " + title(list[0].needs[0])
	}
	var b strings.Builder
	for _, w := range list {
		fmt.Fprintf(&b, "%s\n\n", w.house)
		for _, n := range w.needs[:min(len(w.needs), mostInMail)] {
			fmt.Fprintf(&b, "* %s\n  %s.\n  %s%s\n\n", title(n), reason(n), p.URL, path(n))
		}
		if more := len(w.needs) - mostInMail; more > 0 {
			fmt.Fprintf(&b, "* … and %d more.\n\n", more)
		}
	}
	fmt.Fprintf(&b, "-- \nYou get this mail because you asked for it. To get fewer or none: %s/notifications\n", p.URL)
	return subject, b.String()
}

package push

import (
	"context"
	"errors"
	"time"
	_ "time/tzdata" // the small image and many machines have no time zones

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Digest is how often a person gets a mail at most.
type Digest string

// The digests.
const (
	Off    Digest = "off"
	Hourly Digest = "hourly"
	Daily  Digest = "daily"
)

// Settings are how a person wants to be notified.
type Settings struct {
	Digest Digest
	// Quiet are the hours in which nothing is sent; nil for none.
	Quiet *Quiet
}

// Quiet are hours of each day.
type Quiet struct {
	// From and To are minutes of the day, from 0 to 1439. The hours include From and exclude To. If To is before From, they
	// pass midnight; if both are the same, they are the whole day.
	From, To int
	// Zone is the name of a time zone, such as Europe/Berlin.
	Zone string
}

// day is the number of minutes of a day.
const day = 24 * 60

// Ends returns the end of the quiet hours that contain now, to the minute, or the zero time if now is outside. An hour that
// a clock change repeats counts twice.
func (q *Quiet) Ends(now time.Time) time.Time {
	if q == nil {
		return time.Time{}
	}
	zone, err := time.LoadLocation(q.Zone)
	if err != nil {
		zone = time.UTC // the zone was set on a server that knows more zones
	}
	local := now.In(zone)
	since := (local.Hour()*60 + local.Minute() - q.From + day) % day
	length := (q.To - q.From + day) % day
	if length == 0 {
		length = day
	}
	if since >= length {
		return time.Time{}
	}
	return local.Truncate(time.Minute).Add(time.Duration(length-since) * time.Minute)
}

// Notifications are the settings of a person, with their address and devices.
type Notifications struct {
	Settings
	Devices []Device
	// Email is the verified address to which digests go; empty if the person has none.
	Email string
}

// Get returns the notifications of the scope's agent.
func (p *Pusher) Get(ctx context.Context, scope db.Scope) (n Notifications, err error) {
	err = p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if n.Settings, err = p.settingsTx(ctx, tx); err != nil {
			return err
		}
		if n.Email, err = p.q.LoginEmail(ctx, tx); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		rows, err := p.q.PushDevices(ctx, tx)
		for _, r := range rows {
			n.Devices = append(n.Devices, Device{ID: r.ID, Name: r.Name, AddedAt: r.CreatedAt, NotifiedAt: db.Zero(r.NotifiedAt)})
		}
		return err
	})
	return n, err
}

// settingsTx returns the settings of the scope's agent.
func (p *Pusher) settingsTx(ctx context.Context, tx pgx.Tx) (Settings, error) {
	row, err := p.q.NotificationSettings(ctx, tx)
	if errors.Is(err, pgx.ErrNoRows) {
		return Settings{Digest: Off}, nil
	}
	s := Settings{Digest: Digest(row.Digest)}
	if row.QuietFrom != nil && row.QuietTo != nil {
		s.Quiet = &Quiet{From: int(*row.QuietFrom), To: int(*row.QuietTo), Zone: row.Zone}
	}
	return s, err
}

// Update replaces the settings of the scope's agent.
func (p *Pusher) Update(ctx context.Context, scope db.Scope, s Settings) error {
	if s.Quiet != nil {
		if _, err := time.LoadLocation(s.Quiet.Zone); err != nil || s.Quiet.Zone == "" || s.Quiet.Zone == "Local" || len(s.Quiet.Zone) > 64 {
			return fault.Newf(fault.Invalid, "use a name such as Europe/Berlin", "there is no time zone %q", s.Quiet.Zone)
		}
	}
	return p.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if s.Digest != Off {
			if err := p.mailable(ctx, tx); err != nil {
				return err
			}
		}
		row := query.SaveNotificationSettingsParams{AgentID: scope.Agent, Digest: string(s.Digest)}
		if q := s.Quiet; q != nil {
			from, to := int32(q.From), int32(q.To)
			row.QuietFrom, row.QuietTo, row.Zone = &from, &to, q.Zone
		}
		if err := p.q.SaveNotificationSettings(ctx, tx, row); err != nil {
			return err
		}
		return p.q.WakePushDevices(ctx, tx)
	})
}

// mailable returns an error that says why the server cannot send mail to the scope's agent, or nil.
func (p *Pusher) mailable(ctx context.Context, tx pgx.Tx) error {
	if !p.Mail.Enabled() {
		return fault.New(fault.Precondition, "this server sends no mail", "ask its operator to set smtp_url and mail_from")
	}
	_, err := p.q.LoginEmail(ctx, tx)
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.Precondition, "no login provider has verified an e-mail address of yours", "log in with the provider once, and try again")
	}
	return err
}

package web

import (
	"fmt"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// notificationsView is the page about the notifications of a person.
type notificationsView struct {
	Layout layout
	Now    *arbev1.GetNotificationsResponse
	// The fields of the form. From and To are like "22:00", or empty.
	From, To, Zone string
	Digest         arbev1.MailDigest
	Problems       problems
}

// fill fills the form with the current settings.
func (v *notificationsView) fill() {
	v.Digest = v.Now.GetSettings().GetDigest()
	if q := v.Now.GetSettings().GetQuietHours(); q != nil {
		v.From, v.To, v.Zone = clockText(q.From), clockText(q.To), q.TimeZone
	}
}

// clockText returns a minute of the day like "22:00".
func clockText(minute int32) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }

// digestWords are the choices of the form, by the values of its field.
var digestWords = []struct {
	Value, Words string
	Digest       arbev1.MailDigest
}{
	{"off", "Never", arbev1.MailDigest_MAIL_DIGEST_OFF},
	{"hourly", "At most once an hour", arbev1.MailDigest_MAIL_DIGEST_HOURLY},
	{"daily", "At most once a day", arbev1.MailDigest_MAIL_DIGEST_DAILY},
}

// digestNamed returns the choice with a value; off if there is none, because a form without the field chose none.
func digestNamed(value string) arbev1.MailDigest {
	for _, d := range digestWords {
		if d.Value == value {
			return d.Digest
		}
	}
	return arbev1.MailDigest_MAIL_DIGEST_OFF
}

// mailAdvice says where digests go, or why there are none.
func (v notificationsView) mailAdvice() string {
	switch {
	case !v.Now.SendsMail:
		return "This server sends no mail."
	case v.Now.Email == "":
		return "No login provider has verified an address of yours. Log in with one once to get mail."
	}
	return "It lists what needs you. It goes to " + clip(v.Now.Email, maxWord) + ", the address of your login."
}

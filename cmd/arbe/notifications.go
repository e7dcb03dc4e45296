package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// notificationsView is how the caller is notified, as JSON.
type notificationsView struct {
	Digest     string       `json:"digest"`
	Email      string       `json:"email,omitempty"`
	QuietHours string       `json:"quiet_hours,omitempty"` // such as 22:00-07:00
	TimeZone   string       `json:"time_zone,omitempty"`
	Devices    []deviceView `json:"devices"`
}

type deviceView struct {
	ID         string     `json:"id"`
	Client     string     `json:"client,omitempty"`
	AddedAt    time.Time  `json:"added_at"`
	NotifiedAt *time.Time `json:"notified_at,omitempty"`
}

// digestWords are the values of --digest.
var digestWords = map[string]arbev1.MailDigest{
	"off": arbev1.MailDigest_MAIL_DIGEST_OFF, "hourly": arbev1.MailDigest_MAIL_DIGEST_HOURLY, "daily": arbev1.MailDigest_MAIL_DIGEST_DAILY,
}

func notifications(a *app) *cobra.Command {
	var digest, quiet, zone, remove string
	cmd := &cobra.Command{
		Use:   "notifications",
		Short: "Show or set how you are notified: devices, mail, quiet hours",
		Long: "Show how you are notified of what needs you while you are away, or change it with flags.\n" +
			"\n" +
			"A device is a browser in which you pressed \"Notify me on this device\" on the page /notifications. It is notified\n" +
			"until the browser logs out or --remove removes it. A mail lists what needs you, at most once an hour or a day; it goes\n" +
			"to the address that your login provider has verified. In quiet hours nothing is sent; what you have not read by\n" +
			"then is sent afterwards. arbe thread mute mutes one thread.",
		Example: "  arbe notifications --digest daily\n" +
			"  arbe notifications --quiet-hours 22:00-07:00 --time-zone Europe/Berlin\n" +
			"  arbe notifications --quiet-hours none",
		Args: takes(0, 0, ""),
	}
	cmd.RunE = a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
		if remove != "" {
			if _, err := c.Notifications.RemovePushDevice(ctx, &arbev1.RemovePushDeviceRequest{Id: remove}); err != nil {
				return err
			}
		}
		got, err := c.Notifications.GetNotifications(ctx, &arbev1.GetNotificationsRequest{})
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("digest") || cmd.Flags().Changed("quiet-hours") || cmd.Flags().Changed("time-zone") {
			want, err := settingsWith(got.GetSettings(), digest, quiet, zone)
			if err != nil {
				return err
			}
			if _, err := c.Notifications.UpdateNotifications(ctx, &arbev1.UpdateNotificationsRequest{Settings: want}); err != nil {
				return err
			}
			got.Settings = want
		}
		view := viewNotifications(got)
		return a.show("", view, func() string { return a.notificationsText(view) })
	})
	flags := cmd.Flags()
	flags.StringVar(&digest, "digest", "", "how often to send a mail at most: off, hourly or daily")
	flags.StringVar(&quiet, "quiet-hours", "", "hours in which nothing is sent, such as 22:00-07:00, or none")
	flags.StringVar(&zone, "time-zone", "", "time zone of the quiet hours, such as Europe/Berlin (default: the one set before, or that of $TZ)")
	flags.StringVar(&remove, "remove", "", "id of a device to remove")
	return cmd
}

// settingsWith returns settings with some of them changed; empty values change nothing.
func settingsWith(now *arbev1.NotificationSettings, digest, quiet, zone string) (*arbev1.NotificationSettings, error) {
	want := &arbev1.NotificationSettings{Digest: now.GetDigest(), QuietHours: now.GetQuietHours()}
	if digest != "" {
		word, ok := digestWords[digest]
		if !ok {
			return nil, fault.Newf(fault.Invalid, "pass off, hourly or daily", "there is no digest %q", digest)
		}
		want.Digest = word
	}
	present := now.GetQuietHours().GetTimeZone()
	switch {
	case quiet == "none":
		want.QuietHours = nil
	case quiet != "":
		from, to, _ := strings.Cut(quiet, "-")
		begins, err := time.Parse("15:04", from)
		ends, failed := time.Parse("15:04", to)
		if err != nil || failed != nil {
			return nil, fault.Newf(fault.Invalid, "write them as 22:00-07:00", "%q is not a range of hours", quiet)
		}
		want.QuietHours = &arbev1.QuietHours{From: int32(begins.Hour()*60 + begins.Minute()), To: int32(ends.Hour()*60 + ends.Minute()), TimeZone: present}
	}
	if want.QuietHours == nil {
		return want, nil
	}
	want.QuietHours.TimeZone = first(zone, present, localZone())
	if want.QuietHours.TimeZone == "" {
		return nil, fault.New(fault.Invalid, "quiet hours need a time zone", "pass --time-zone Europe/Berlin")
	}
	return want, nil
}

// localZone returns the name of this machine's time zone; empty if it is not known.
func localZone() string {
	if name := time.Local.String(); name != "Local" {
		return name
	}
	return ""
}

func viewNotifications(got *arbev1.GetNotificationsResponse) notificationsView {
	v := notificationsView{Email: got.GetEmail(), Devices: []deviceView{}}
	for word, digest := range digestWords {
		if digest == got.GetSettings().GetDigest() {
			v.Digest = word
		}
	}
	if q := got.GetSettings().GetQuietHours(); q != nil {
		v.QuietHours, v.TimeZone = fmt.Sprintf("%02d:%02d-%02d:%02d", q.GetFrom()/60, q.GetFrom()%60, q.GetTo()/60, q.GetTo()%60), q.GetTimeZone()
	}
	for _, d := range got.GetDevices() {
		v.Devices = append(v.Devices, deviceView{d.GetId(), d.GetClient(), d.GetCreatedAt().AsTime(), export.Optional(d.GetNotifiedAt())})
	}
	return v
}

func (a *app) notificationsText(v notificationsView) string {
	var b strings.Builder
	mail := v.Digest
	if v.Digest != "off" {
		mail += ", to " + entry.PrintableLine(v.Email)
	}
	quiet := "none"
	if v.QuietHours != "" {
		quiet = v.QuietHours + " " + entry.PrintableLine(v.TimeZone)
	}
	fmt.Fprintf(&b, "mail: %s\nquiet hours: %s\ndevices: ", mail, quiet)
	if len(v.Devices) == 0 {
		b.WriteString("none; add one on the page /notifications")
	}
	for _, d := range v.Devices {
		fmt.Fprintf(&b, "\n  %s  %s, added %s", d.ID, entry.PrintableLine(first(d.Client, "unknown")), a.when(d.AddedAt))
	}
	return b.String()
}

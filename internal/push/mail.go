package push

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/setting"
)

// mailTimeout is how long a mail server may take for a mail.
const mailTimeout = 30 * time.Second

// Mail configures how the server sends mail.
type Mail struct {
	// Server is the URL of the mail server; nil for none.
	Server *url.URL
	// From is the address in the mails.
	From string
}

// Options configure the mails.
type Options struct {
	Mail Mail
	// PrivateHosts are those of [Config].
	PrivateHosts outbound.Hosts
}

// OptionSettings are the operator's settings of notifications.
func OptionSettings() []setting.Setting[Options] {
	return []setting.Setting[Options]{
		setting.Value("smtp_url", "", "mail server for digests: smtp://user:password@host:587 (with STARTTLS, which only a server on this machine may lack) or smtps://host (default: no mail)", setServer).Masked(),
		setting.Value("mail_from", "", "address in the mails that the server sends, such as arbe@example.com", setFrom),
		setting.Value("push_private_hosts", "", "hosts (or host:port) at private addresses that may be push services of browsers, separated by commas", setPushHosts),
	}
}

// Check returns an error if the settings contradict each other.
func (o Options) Check() error {
	if o.Mail.Server != nil && o.Mail.From == "" {
		return fault.New(fault.Invalid, "mail_from: it is not set, but smtp_url is", "set the address that the mails of this server come from")
	}
	return nil
}

func setServer(o *Options, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" || u.RawQuery != "" || u.Path != "" {
		return fault.New(fault.Invalid, "it is not the address of a mail server", "write it as smtp://user:password@host:587 or smtps://host")
	}
	o.Mail.Server = u
	return nil
}

func setFrom(o *Options, text string) error {
	if err := mail.NewMsg().From(text); err != nil {
		return fault.Newf(fault.Invalid, "write it as arbe@example.com", "%q is not an address for mail", text)
	}
	o.Mail.From = text
	return nil
}

func setPushHosts(o *Options, text string) (err error) {
	if o.PrivateHosts, err = outbound.ParseHosts(setting.Split(text)...); err != nil {
		err = fault.New(fault.Invalid, err.Error(), "give hosts, or host:port, separated by commas")
	}
	return err
}

// Enabled reports whether mail can be sent.
func (m Mail) Enabled() bool { return m.Server != nil }

// client returns a client of the mail server.
func (m Mail) client() (*mail.Client, error) {
	policy, options := mail.TLSMandatory, []mail.Option{mail.WithTimeout(mailTimeout), mail.WithoutNoop()}
	if ip := net.ParseIP(m.Server.Hostname()); m.Server.Hostname() == "localhost" || ip.IsLoopback() {
		policy = mail.TLSOpportunistic
	}
	port := 587
	if m.Server.Scheme == "smtps" {
		port = 465
		options = append(options, mail.WithSSL())
	} else {
		options = append(options, mail.WithTLSPolicy(policy))
	}
	if text := m.Server.Port(); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		port = n
	}
	if password, set := m.Server.User.Password(); set {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(m.Server.User.Username()), mail.WithPassword(password))
	}
	return mail.NewClient(m.Server.Hostname(), append(options, mail.WithPort(port))...)
}

// send sends a mail in plain text. unsubscribe is the page that ends such mails. The subject and the text may have any characters:
// the library encodes them, so that they add no header.
func (m Mail) send(ctx context.Context, to, subject, text, unsubscribe string) error {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := msg.From(m.From); err != nil {
		return err
	}
	if err := msg.To(to); err != nil {
		return fmt.Errorf("the address of the login: %w", err)
	}
	msg.Subject(subject)
	msg.SetGenHeader("List-Unsubscribe", "<"+unsubscribe+">")
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(mail.TypeTextPlain, text)
	client, err := m.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mailTimeout)
	defer cancel()
	return client.DialAndSendWithContext(ctx, msg)
}

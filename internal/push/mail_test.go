package push_test

import (
	"bufio"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/push"
)

// mailServer is an SMTP server that takes all mails.
type mailServer struct {
	net.Listener
	mu    sync.Mutex
	mails []string
	to    []string
	// refuse is its answer to a recipient, if it is set.
	refuse string
}

func newMailServer(t testing.TB) *mailServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &mailServer{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *mailServer) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	fmt.Fprint(c, "220 mail.test\r\n")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(strings.TrimSpace(line)); {
		case strings.HasPrefix(verb, "RCPT"):
			s.mu.Lock()
			answer := s.refuse
			if answer == "" {
				s.to = append(s.to, strings.TrimSpace(line))
				answer = "250 ok"
			}
			s.mu.Unlock()
			fmt.Fprint(c, answer+"\r\n")
		case verb == "DATA":
			fmt.Fprint(c, "354 go\r\n")
			var text strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				text.WriteString(strings.TrimPrefix(line, "."))
			}
			s.mu.Lock()
			s.mails = append(s.mails, text.String())
			s.mu.Unlock()
			fmt.Fprint(c, "250 taken\r\n")
		case verb == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		default:
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
}

// sent returns the mails since the last call.
func (s *mailServer) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.mails
	s.mails = nil
	return sent
}

// mails makes the bench's server send mail, to an address of Bob.
func (b *bench) mails(t testing.TB, digest push.Digest) *mailServer {
	t.Helper()
	s := newMailServer(t)
	b.config.Mail = push.Mail{Server: &url.URL{Scheme: "smtp", Host: s.Addr().String()}, From: "arbe@example.com"}
	b.pusher = b.newPusher(t)
	b.exec(t, "insert into login_identities (issuer, subject, agent_id, email) values ('https://login.example.com', 'bob', $1, 'bob@example.com')", b.bob.Agent)
	must(t, b.pusher.Update(t.Context(), b.bob, push.Settings{Digest: digest}))
	return s
}

func TestADigestListsWhatNeedsAPersonOnceAnHour(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.mails(t, push.Hourly)
	first, second := b.mention(t, "Plans"), b.mention(t, "Übersicht")
	b.sweep(t)
	b.sweep(t)
	sent := s.sent()
	if len(sent) != 1 || strings.Join(s.to, "") != "RCPT TO:<bob@example.com>" {
		t.Fatalf("it sent %q to %q", sent, s.to)
	}
	m, err := mail.ReadMessage(strings.NewReader(sent[0]))
	must(t, err)
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	must(t, err)
	for header, want := range map[string]string{"Subject": "2 threads need you", "From": "<arbe@example.com>", "To": "<bob@example.com>",
		"List-Unsubscribe": "<https://arbe.example.com/notifications>", "Auto-Submitted": "auto-generated", "Content-Type": "text/plain; charset=UTF-8"} {
		if got := m.Header.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	for _, part := range []string{"Home", "* Plans", "* Übersicht", "Ada Lovelace mentioned you.", "https://arbe.example.com/threads/" + first.ID + "?at=1#e1", second.ID, "https://arbe.example.com/notifications"} {
		if !strings.Contains(string(body), part) {
			t.Errorf("it lacks %q:\n%s", part, body)
		}
	}

	b.mention(t, "within the hour")
	b.sweep(t)
	if sent := s.sent(); len(sent) != 0 {
		t.Errorf("within the hour, it sent %q", sent)
	}
	b.exec(t, "update notification_settings set mailed_at = mailed_at - interval '1 hour'")
	b.sweep(t)
	if sent := s.sent(); len(sent) != 1 {
		t.Errorf("after an hour, it sent %q", sent)
	}
	b.exec(t, "update notification_settings set mailed_at = mailed_at - interval '1 hour'")
	b.sweep(t)
	if sent := s.sent(); len(sent) != 0 {
		t.Errorf("without anything new, it sent %q", sent)
	}
}

func TestADailyDigestComesOnceADay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.mails(t, push.Daily)
	for hours, want := range map[int]int{23: 0, 24: 1} {
		b.mention(t, "Plans")
		b.exec(t, "update notification_settings set mailed_at = now() - make_interval(hours => $1)", hours)
		b.sweep(t)
		if sent := s.sent(); len(sent) != want {
			t.Errorf("after %d hours, it sent %q", hours, sent)
		}
	}
}

func TestTwoServersSendOneDigest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.mails(t, push.Hourly)
	b.mention(t, "Plans")
	var both sync.WaitGroup
	for range 2 {
		p := b.newPusher(t)
		both.Go(func() {
			if err := p.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if sent := s.sent(); len(sent) != 1 {
		t.Errorf("they sent %q", sent)
	}
}

func TestNoDigest(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(b *bench){
		"when it is off": func(b *bench) {
			must(t, b.pusher.Update(t.Context(), b.bob, push.Settings{Digest: push.Off}))
		},
		"in quiet hours": func(b *bench) {
			must(t, b.pusher.Update(t.Context(), b.bob, push.Settings{Digest: push.Hourly, Quiet: &push.Quiet{From: 11 * 60, To: 13 * 60, Zone: "UTC"}}))
		},
		"of what was read":   func(b *bench) { b.exec(t, "delete from notices") },
		"without an address": func(b *bench) { b.exec(t, "update login_identities set email = ''") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.mails(t, push.Hourly)
			b.mention(t, "Plans")
			before(b)
			b.sweep(t)
			if sent := s.sent(); len(sent) != 0 {
				t.Errorf("it sent %q", sent)
			}
		})
	}
}

func TestAMailThatIsRefusedIsSentLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.mails(t, push.Hourly)
	b.mention(t, "Plans")
	s.refuse = "451 later"
	b.sweep(t)
	s.mu.Lock()
	s.refuse = ""
	s.mu.Unlock()
	b.sweep(t)
	if sent := s.sent(); len(sent) != 0 {
		t.Errorf("immediately, it sent %q", sent)
	}
	b.later(t)
	b.sweep(t)
	if sent := s.sent(); len(sent) != 1 {
		t.Errorf("later, it sent %q", sent)
	}
}

func TestANameAddsNoHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.mails(t, push.Hourly)
	th := b.mention(t, "old")
	evil := "x\r\nBcc: eve@example.com\r\n\r\n.\r\nMAIL FROM:<eve@example.com>"
	b.exec(t, "update threads set name = $2 where id = $1", th.ID, evil)
	b.exec(t, "update agents set name = $1", evil)
	b.exec(t, "update houses set name = $1", evil)
	b.sweep(t)
	sent := s.sent()
	if len(sent) != 1 || len(s.to) != 1 {
		t.Fatalf("it sent %q to %q", sent, s.to)
	}
	m, err := mail.ReadMessage(strings.NewReader(sent[0]))
	must(t, err)
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	must(t, err)
	if m.Header.Get("Bcc") != "" || !strings.HasPrefix(subject, "Needs you: x  Bcc: eve@example.com") {
		t.Errorf("its headers are %v", m.Header)
	}
}

func TestWhoCanHaveDigests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	daily := push.Settings{Digest: push.Daily}
	if err := b.pusher.Update(t.Context(), b.bob, daily); fault.CodeOf(err) != fault.Precondition {
		t.Errorf("of a server without mail: %v", err)
	}
	b.mails(t, push.Daily)
	if err := b.pusher.Update(t.Context(), b.ada, daily); fault.CodeOf(err) != fault.Precondition {
		t.Errorf("without an address: %v", err)
	}
	quiet := push.Settings{Digest: push.Daily, Quiet: &push.Quiet{From: 5, To: 6, Zone: "Nowhere/At_All"}}
	if err := b.pusher.Update(t.Context(), b.bob, quiet); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("in no time zone: %v", err)
	}
	quiet.Quiet.Zone = "Asia/Tokyo"
	must(t, b.pusher.Update(t.Context(), db.Scope{Agent: b.bob.Agent}, quiet))
	n, err := b.pusher.Get(t.Context(), db.Scope{Agent: b.bob.Agent})
	must(t, err)
	if n.Email != "bob@example.com" || n.Digest != push.Daily || *n.Quiet != *quiet.Quiet {
		t.Errorf("Bob has %+v", n)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"smtp://user:sesame@mail.example.com:587": true, "smtps://mail.example.com": true, "https://mail.example.com": false, "smtp://": false, "mail.example.com": false,
	} {
		var o push.Options
		for _, s := range push.OptionSettings() {
			if s.Name == "smtp_url" {
				if err := s.Set(&o, text); (err == nil) != want || err != nil && strings.Contains(err.Error(), "sesame") {
					t.Errorf("%s: %v", text, err)
				}
			}
		}
		if want && o.Check() == nil {
			t.Errorf("%s needs no address to send from", text)
		}
	}
}

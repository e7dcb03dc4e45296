package push_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/push"
)

func (b *bench) expect(t testing.TB, d *device, want ...string) {
	t.Helper()
	if got := b.service.sent(d); !slices.Equal(got, want) {
		t.Errorf("the device was sent %q, want %q", got, want)
	}
}

func TestADeviceIsNotifiedOnceOfEachChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mention(t, "before the device was added")
	d := b.device(t)
	b.sweep(t)
	b.expect(t, d)

	th := b.mention(t, "Plans")
	mentioned := fmt.Sprintf("Plans: Ada Lovelace mentioned you /threads/%s?at=1#e1 %[1]s", th.ID)
	b.sweep(t)
	b.expect(t, d, mentioned)
	b.sweep(t)
	b.expect(t, d)
	b.again(t, th)
	b.sweep(t)
	b.expect(t, d, mentioned) // the first entry that they have not read is the same
	if len(b.service.signers) != 1 || !b.service.signers[b.pusher.PublicKey()] {
		t.Errorf("%v signed, want %s", b.service.signers, b.pusher.PublicKey())
	}
	n, err := b.pusher.Get(t.Context(), db.Scope{Agent: b.bob.Agent})
	must(t, err)
	if len(n.Devices) != 1 || n.Devices[0].ID != d.id || n.Devices[0].NotifiedAt.IsZero() {
		t.Errorf("Bob has %+v", n.Devices)
	}
}

func TestWhyAThreadNeedsSomebody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	for kind, want := range map[string]string{"failed": "Work that you asked for has failed", "finished": "Work that you asked for is finished"} {
		th := b.mention(t, "old")
		b.exec(t, "update threads set name = $2 where id = $1", th.ID, "Line\nbreak") // older versions allowed that
		b.exec(t, "update notices set kind = $2 where thread_id = $1", th.ID, kind)
		b.sweep(t)
		b.expect(t, d, fmt.Sprintf("Line break: %s /threads/%s?at=1#e1 %[2]s", want, th.ID))
	}
	for range 8 {
		b.mention(t, "")
	}
	b.sweep(t)
	got := b.service.sent(d)
	if len(got) != 6 || !strings.HasPrefix(got[0], "3 more threads need you:  /houses/") || !strings.HasPrefix(got[1], "Untitled thread: Ada") {
		t.Errorf("of eight, the device was sent %q", got)
	}
}

func TestWhatIsReadOrMutedMeanwhileIsNotTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	read, muted := b.mention(t, "read"), b.mention(t, "muted")
	b.exec(t, "update notices set kind = 'finished' where thread_id = $1", muted.ID)
	_, err := b.inboxes.MarkRead(t.Context(), b.bob, read.ID, 1)
	must(t, err)
	_, err = b.inboxes.Mute(t.Context(), b.bob, muted.ID, true)
	must(t, err)
	b.sweep(t)
	b.expect(t, d)
}

func TestSomebodyWhoLooksIsNotDisturbed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Wait = 0
	b.pusher = b.newPusher(t)
	d := b.device(t)
	th := b.mention(t, "Plans")
	b.sweep(t)
	b.expect(t, d)
	b.exec(t, "update push_devices set created_at = now() - interval '1 hour'")
	b.exec(t, "update notices set at = now() - interval '11 seconds'")
	b.sweep(t)
	if got := b.service.sent(d); len(got) != 1 || !strings.HasSuffix(got[0], th.ID) {
		t.Errorf("later, the device was sent %q", got)
	}
}

func TestTwoServersNotifyOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
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
	if got := b.service.sent(d); len(got) != 1 {
		t.Errorf("the device was sent %q", got)
	}
}

func TestInQuietHoursNothingIsSentAndAfterwardsWhatIsUnread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	must(t, b.pusher.Update(t.Context(), b.bob, push.Settings{Digest: push.Off, Quiet: &push.Quiet{From: 22 * 60, To: 7 * 60, Zone: "Europe/Berlin"}}))
	read, unread := b.mention(t, "read at night"), b.mention(t, "unread")
	b.setTime(time.Date(2026, 11, 27, 2, 0, 0, 0, time.UTC))
	b.sweep(t)
	b.expect(t, d)
	var wait time.Duration
	must(t, b.owner.QueryRow(t.Context(), "select not_before - now() from push_devices").Scan(&wait))
	if wait < 3*time.Hour || wait > 4*time.Hour {
		t.Errorf("at 3:00 in Berlin, it waits %s until 7:00", wait)
	}
	_, err := b.inboxes.MarkRead(t.Context(), b.bob, read.ID, 1)
	must(t, err)
	b.setTime(time.Date(2026, 11, 27, 6, 0, 0, 0, time.UTC))
	b.later(t)
	b.sweep(t)
	if got := b.service.sent(d); len(got) != 1 || !strings.HasSuffix(got[0], unread.ID) {
		t.Errorf("in the morning, the device was sent %q", got)
	}
}

func TestQuietHours(t *testing.T) {
	t.Parallel()
	night, noon, always := push.Quiet{From: 22 * 60, To: 7 * 60, Zone: "Europe/Berlin"}, push.Quiet{From: 720, To: 780, Zone: "Asia/Tokyo"}, push.Quiet{Zone: "UTC"}
	for _, c := range []struct {
		quiet     push.Quiet
		now, ends string
	}{
		{night, "2026-11-27T20:59:59Z", ""},
		{night, "2026-11-27T21:00:30Z", "2026-11-28T06:00:00Z"},
		{night, "2026-11-28T05:59:59Z", "2026-11-28T06:00:00Z"},
		{night, "2026-11-28T06:00:00Z", ""},
		{night, "2026-07-01T04:30:00Z", "2026-07-01T05:00:00Z"}, // summer time
		{noon, "2026-11-27T03:30:00Z", "2026-11-27T04:00:00Z"},
		{noon, "2026-11-27T12:30:00Z", ""},
		{always, "2026-11-27T12:30:00Z", "2026-11-28T00:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		must(t, err)
		ends := ""
		if at := c.quiet.Ends(now); !at.IsZero() {
			ends = at.UTC().Format(time.RFC3339)
		}
		if ends != c.ends {
			t.Errorf("%s in %+v ends %q, want %q", c.now, c.quiet, ends, c.ends)
		}
	}
	var none *push.Quiet
	if !none.Ends(time.Now()).IsZero() {
		t.Error("without quiet hours, they end")
	}
}

func TestADeviceThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusGone, http.StatusForbidden} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.device(t)
			b.mention(t, "Plans")
			b.service.answers(status, nil)
			b.sweep(t)
			n, err := b.pusher.Get(t.Context(), b.bob)
			must(t, err)
			if len(n.Devices) != 0 {
				t.Errorf("Bob has %+v", n.Devices)
			}
		})
	}
}

func TestABusyPushServiceIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	b.mention(t, "Plans")
	for failures, want := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute} {
		b.service.answers(http.StatusServiceUnavailable, nil)
		if failures == 2 {
			b.service.answers(http.StatusTooManyRequests, http.Header{"Retry-After": {"600"}})
		}
		b.sweep(t)
		var wait time.Duration
		must(t, b.owner.QueryRow(t.Context(), "select not_before - now() from push_devices").Scan(&wait))
		if wait > want || wait < want-20*time.Second {
			t.Errorf("after %d failures, it waits %s, want %s", failures+1, wait, want)
		}
		b.service.answers(0, nil)
		b.sweep(t)
		b.expect(t, d)
		b.later(t)
	}
	b.sweep(t)
	if got := b.service.sent(d); len(got) != 1 {
		t.Errorf("later, the device was sent %q", got)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.service.newDevice(t).address
	for name, change := range map[string]func(*push.Address){
		"no address":             func(a *push.Address) { a.Endpoint = "" },
		"http":                   func(a *push.Address) { a.Endpoint = "http://push.example.com/x" },
		"a file":                 func(a *push.Address) { a.Endpoint = "file:///etc/passwd" },
		"a name":                 func(a *push.Address) { a.Endpoint = "https://user@push.example.com/x" },
		"no key":                 func(a *push.Address) { a.P256dh = "" },
		"a key off the curve":    func(a *push.Address) { a.P256dh = "B" + strings.Repeat("A", 86) },
		"a secret that is short": func(a *push.Address) { a.Auth = "AAAA" },
	} {
		a := good
		change(&a)
		if _, err := b.pusher.Add(t.Context(), b.bob, a, "", nil); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name may resolve to a private address later, so the address is checked when it is called.
func TestAPrivateAddressIsNotCalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.service.newDevice(t)
	d.address.Endpoint = strings.Replace(d.address.Endpoint, "http://127.0.0.1", "https://localhost", 1)
	_, err := b.pusher.Add(t.Context(), b.bob, d.address, "", nil)
	must(t, err)
	b.mention(t, "Plans")
	b.sweep(t)
	b.expect(t, d)
	var failures int
	must(t, b.owner.QueryRow(t.Context(), "select failures from push_devices").Scan(&failures))
	if failures != 1 {
		t.Errorf("it failed %d times", failures)
	}
}

func TestADeviceHasOnePerson(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	again, err := b.pusher.Add(t.Context(), b.bob, d.address, "", nil)
	must(t, err)
	if again != d.id {
		t.Errorf("the device is %s, and was %s", again, d.id)
	}
	_, err = b.pusher.Add(t.Context(), b.ada, d.address, "", nil)
	must(t, err)
	for who, want := range map[db.Scope]int{b.ada: 1, b.bob: 0} {
		n, err := b.pusher.Get(t.Context(), who)
		must(t, err)
		if len(n.Devices) != want {
			t.Errorf("somebody has %d devices, want %d", len(n.Devices), want)
		}
	}
	if err := b.pusher.Remove(t.Context(), b.bob, again); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("Bob removes Ada's: %v", err)
	}
	for i := range push.MaxDevices {
		_, err = b.pusher.Add(t.Context(), b.ada, b.service.newDevice(t).address, "", nil)
		if want := i == push.MaxDevices-1; (fault.CodeOf(err) == fault.Exhausted) != want {
			t.Errorf("after %d devices: %v", i+1, err)
		}
	}
}

func TestADeviceEndsWithTheSessionOfItsBrowser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, "insert into login_sessions (hash, agent_id, expires_at) values ('s', $1, now() + interval '1 hour')", b.bob.Agent)
	d := b.service.newDevice(t)
	_, err := b.pusher.Add(t.Context(), b.bob, d.address, "", []byte("s"))
	must(t, err)
	b.mention(t, "Plans")
	b.exec(t, "update login_sessions set expires_at = now()")
	b.sweep(t)
	b.expect(t, d)
	b.exec(t, "delete from login_sessions")
	n, err := b.pusher.Get(t.Context(), b.bob)
	must(t, err)
	if len(n.Devices) != 0 {
		t.Errorf("after the logout, Bob has %+v", n.Devices)
	}
}

func TestTheDatabaseDoesNotHaveAddresses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.device(t)
	if where := dbtest.Grep(t, b.owner, strings.TrimPrefix(d.path, "/send/")); len(where) > 0 {
		t.Errorf("the address is in %v", where)
	}
}

// A sweep is cheap when everybody was notified, however many threads need them.
func TestASweepReadsNoThreadsThatWereTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.device(t)
	b.exec(t, "insert into streams (house_id, name) select $1, 'arbe-thread-thread' || n from generate_series(1, 3000) n", b.bob.House)
	b.exec(t, "insert into threads (id, house_id, stream_id, name) select 'thread' || n, $1, 'arbe-thread-thread' || n, 'thread' from generate_series(1, 3000) n", b.bob.House)
	b.exec(t, "insert into notices (house_id, agent_id, thread_id, kind, first_seq, last_seq, at) select house_id, $1, id, 'mention', 4, 8, now() - interval '1 day' from threads", b.bob.Agent)
	b.exec(t, "analyze")
	tx, err := b.owner.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select from claim_push_devices('0 s', '1 s', 10)")
	must(t, err)
	var read int
	must(t, tx.QueryRow(t.Context(), "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = 'notices'").Scan(&read))
	if read > 1 {
		t.Errorf("it read %d notices", read)
	}
}

package rpc_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// begin begins a login of a program.
func (b *bench) begin(t *testing.T) *arbev1.BeginDeviceLoginResponse {
	t.Helper()
	res, err := b.client("").Agents.BeginDeviceLogin(t.Context(), &arbev1.BeginDeviceLoginRequest{Client: "arbe on build-7"})
	must(t, err)
	return res
}

// poll asks for the session of a login, as if the last poll was long ago.
func (b *bench) poll(t *testing.T, begun *arbev1.BeginDeviceLoginResponse) (*arbev1.PollDeviceLoginResponse, error) {
	t.Helper()
	b.exec(t, "update device_logins set polled_at = null")
	return b.client("").Agents.PollDeviceLogin(t.Context(), &arbev1.PollDeviceLoginRequest{DeviceCode: begun.DeviceCode})
}

func (p person) look(t *testing.T, code string) (*arbev1.GetDeviceLoginResponse, error) {
	return p.Agents.GetDeviceLogin(t.Context(), &arbev1.GetDeviceLoginRequest{UserCode: code})
}

func (p person) answerLogin(t *testing.T, code string, verdict arbev1.Verdict) error {
	return errOf(p.Agents.AnswerDeviceLogin(t.Context(), &arbev1.AnswerDeviceLoginRequest{UserCode: code, Verdict: verdict}))
}

const approve, deny = arbev1.Verdict_VERDICT_APPROVE, arbev1.Verdict_VERDICT_DENY

func TestAProgramLogsInWithACodeThatAPersonApproves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := b.begin(t)
	if left := time.Until(begun.ExpiresAt.AsTime()); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("the code is good for %v, want ten minutes", left)
	}
	if !regexp.MustCompile(`^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`).MatchString(begun.UserCode) || begun.Path != "/login/device?code="+begun.UserCode {
		t.Errorf("the code is %q, at %q", begun.UserCode, begun.Path)
	}
	if len(begun.DeviceCode) < 50 || begun.Interval.AsDuration() != 2*time.Second {
		t.Errorf("the program got %v", begun)
	}
	res, err := b.poll(t, begun)
	must(t, err)
	if res.Session != "" {
		t.Fatal("there is a session before anybody has approved")
	}

	typed := strings.ToLower(strings.ReplaceAll(begun.UserCode, "-", " "))
	seen, err := b.ada.look(t, typed)
	must(t, err)
	if l := seen.Login; l.UserCode != begun.UserCode || l.Client != "arbe on build-7" || l.Address != "127.0.0.1" || time.Since(l.CreatedAt.AsTime()) > time.Minute {
		t.Errorf("the person sees %v", l)
	}
	must(t, b.ada.answerLogin(t, typed, approve))
	res, err = b.poll(t, begun)
	must(t, err)
	who, err := b.client(res.Session).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
	must(t, err)
	if res.Agent.Id != b.ada.id || who.Agent.Id != b.ada.id || who.Credential != "session" || who.HouseId != "" {
		t.Errorf("the session is of %v, and says %v", res.Agent, who)
	}
	if left := time.Until(res.ExpiresAt.AsTime()); left < 29*24*time.Hour || left > 30*24*time.Hour {
		t.Errorf("the session is good for %v, want 30 days as after a login link", left)
	}

	// The session ends like every other one.
	must(t, errOf(b.client(res.Session).Agents.EndSession(t.Context(), &arbev1.EndSessionRequest{})))
	refused(t, errOf(b.client(res.Session).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})), connect.CodeUnauthenticated, "not known")
}

func TestALoginOfAProgramHasOneAnswerAndOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Run("the device code is used once, also by many at once", func(t *testing.T) {
		begun := b.begin(t)
		must(t, b.ada.answerLogin(t, begun.UserCode, approve))
		var in atomic.Int64
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				_, err := b.client("").Agents.PollDeviceLogin(t.Context(), &arbev1.PollDeviceLoginRequest{DeviceCode: begun.DeviceCode})
				if err == nil {
					in.Add(1)
				} else {
					refused(t, err, connect.CodeUnauthenticated, "already used")
				}
			})
		}
		work.Wait()
		if in.Load() != 1 {
			t.Errorf("%d sessions began", in.Load())
		}
	})
	t.Run("the first person who answers decides, and may repeat the answer", func(t *testing.T) {
		begun := b.begin(t)
		must(t, b.ada.answerLogin(t, begun.UserCode, approve))
		must(t, b.ada.answerLogin(t, begun.UserCode, approve))
		refused(t, b.ada.answerLogin(t, begun.UserCode, deny), connect.CodeFailedPrecondition, "already used")
		refused(t, b.bob.answerLogin(t, begun.UserCode, approve), connect.CodeFailedPrecondition, "already used")
		_, err := b.bob.look(t, begun.UserCode)
		refused(t, err, connect.CodeFailedPrecondition, "already used")
		res, err := b.poll(t, begun)
		must(t, err)
		if res.Agent.Id != b.ada.id {
			t.Errorf("the session is of %v", res.Agent)
		}
	})
	t.Run("a denied login never becomes a session", func(t *testing.T) {
		begun := b.begin(t)
		must(t, b.ada.answerLogin(t, begun.UserCode, deny))
		refused(t, b.ada.answerLogin(t, begun.UserCode, approve), connect.CodeFailedPrecondition, "already used")
		_, err := b.poll(t, begun)
		refused(t, err, connect.CodePermissionDenied, "was denied")
	})
}

func TestALoginOfAProgramNeedsItsSecretInTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Run("an expired login is neither approved nor used", func(t *testing.T) {
		late, approved := b.begin(t), b.begin(t)
		must(t, b.ada.answerLogin(t, approved.UserCode, approve))
		b.exec(t, "update device_logins set expires_at = now() where device = any ($1)", [][]byte{digest(late.DeviceCode), digest(approved.DeviceCode)})
		refused(t, b.ada.answerLogin(t, late.UserCode, approve), connect.CodeFailedPrecondition, "has expired")
		for _, begun := range []*arbev1.BeginDeviceLoginResponse{late, approved} {
			_, err := b.poll(t, begun)
			refused(t, err, connect.CodeUnauthenticated, "within ten minutes")
		}
	})
	t.Run("a code is no secret of the program, and nothing that nobody began is known", func(t *testing.T) {
		begun := b.begin(t)
		must(t, b.ada.answerLogin(t, begun.UserCode, approve))
		for _, secret := range []string{begun.UserCode, strings.ReplaceAll(begun.UserCode, "-", ""), b.ada.key, "made up", "nul\x00"} {
			_, err := b.client("").Agents.PollDeviceLogin(t.Context(), &arbev1.PollDeviceLoginRequest{DeviceCode: secret})
			refused(t, err, connect.CodeUnauthenticated, "not known")
		}
	})
	t.Run("both codes are stored only as hashes", func(t *testing.T) {
		begun := b.begin(t)
		if n := ask[int](t, b, "select count(*) from device_logins l where l::text like '%' || encode($1, 'hex') || '%' or l::text like '%' || encode($2, 'hex') || '%'",
			[]byte(begun.DeviceCode), []byte(strings.ReplaceAll(begun.UserCode, "-", ""))); n != 0 {
			t.Errorf("%d codes are in the database as they are", n)
		}
	})
}

func TestCodesOfLoginsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := b.begin(t)
	for n := range 10 {
		refused(t, b.bob.answerLogin(t, fmt.Sprintf("BBBB-BBB%c", "CDFGHJKLMN"[n]), approve), connect.CodeNotFound, "no login with this code")
	}
	refused(t, b.bob.answerLogin(t, begun.UserCode, approve), connect.CodeResourceExhausted, "10 wrong codes")
	_, err := b.bob.look(t, begun.UserCode)
	refused(t, err, connect.CodeResourceExhausted, "10 wrong codes")
	_, err = b.ada.look(t, begun.UserCode) // others are not affected
	must(t, err)
	b.exec(t, "update device_login_guesses set since = now() - interval '10 minutes'")
	_, err = b.bob.look(t, begun.UserCode)
	must(t, err)
}

func TestLoginsOfProgramsAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := b.begin(t)
	t.Run("in how often a program polls", func(t *testing.T) {
		_, err := b.poll(t, begun)
		must(t, err)
		_, err = b.client("").Agents.PollDeviceLogin(t.Context(), &arbev1.PollDeviceLoginRequest{DeviceCode: begun.DeviceCode})
		refused(t, err, connect.CodeResourceExhausted, "too often")
		if got := arbev1.ErrorInfoOf(err).Reason; got != "SLOW_DOWN" {
			t.Errorf("the reason is %q", got)
		}
	})
	t.Run("in how many are open from one address", func(t *testing.T) {
		b.exec(t, `insert into device_logins (device, code, client, address, expires_at)
			select decode(md5('d' || n), 'hex'), decode(md5('c' || n), 'hex'), 'many', '127.0.0.1', now() + interval '1 minute' from generate_series(2, 100) n`)
		_, err := b.client("").Agents.BeginDeviceLogin(t.Context(), &arbev1.BeginDeviceLoginRequest{Client: "arbe"})
		refused(t, err, connect.CodeResourceExhausted, "too many logins")
		b.exec(t, "update device_logins set expires_at = now() where client = 'many'")
		b.begin(t)
	})
	t.Run("in what a program calls itself", func(t *testing.T) {
		for _, client := range []string{" ", "two\nlines", "hidden\u202etext"} {
			_, err := b.client("").Agents.BeginDeviceLogin(t.Context(), &arbev1.BeginDeviceLoginRequest{Client: client})
			refused(t, err, connect.CodeInvalidArgument, "client")
		}
	})
	t.Run("and are dropped an hour after their end", func(t *testing.T) {
		b.exec(t, "update device_logins set expires_at = now() - interval '2 hours' where device = $1", digest(begun.DeviceCode))
		b.exec(t, "delete from device_logins where client = 'many'")
		b.begin(t)
		if n := ask[int](t, b, "select count(*) from device_logins where device = $1", digest(begun.DeviceCode)); n != 0 {
			t.Error("it is still there")
		}
	})
}

// The address is shown to the person who approves, so nobody must be able to choose it.
func TestTheAddressOfALoginIsTheOneThatArbeKnows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for headers, want := range map[string]string{
		"":                                     "127.0.0.1",
		"X-Forwarded-Proto: https":             "", // a proxy that does not say
		"X-Forwarded-For: 6.6.6.6, 192.0.2.7":  "192.0.2.7",
		"X-Forwarded-For: ::ffff:192.0.2.7":    "192.0.2.7",
		"X-Forwarded-For: <script>":            "",
		"Forwarded: for=6.6.6.6;proto=http":    "",
		"X-Forwarded-For: 6.6.6.6, fe80::1%lo": "fe80::1",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/arbe.v1.AgentService/BeginDeviceLogin", strings.NewReader(`{"client":"arbe"}`))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		if name, value, ok := strings.Cut(headers, ": "); ok {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
		if got := ask[string](t, b, "select address from device_logins order by created_at desc limit 1"); res.StatusCode != http.StatusOK || got != want {
			t.Errorf("with %q it answers %d, and the address is %q, want %q", headers, res.StatusCode, got, want)
		}
	}
}

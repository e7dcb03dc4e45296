package secret_test

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a database with two houses, each with a person and a bot.
type bench struct {
	*dbtest.Database
	owner        *pgx.Conn
	home, other  db.Scope
	bot          db.Scope
	key          string
	sealer, next *secret.Sealer // with the old key, and with a new one that opens both
	nextKey      string
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10)}
	b.owner = b.Owner(t)
	for _, scope := range []*db.Scope{&b.home, &b.other} {
		scope.House = b.ask(t, "insert into houses (name) values ('Home') returning id")
		scope.Agent = b.ask(t, "insert into agents (kind, name) values ('human', 'Ada') returning id::text")
		b.ask(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'owner') returning role", scope.House, scope.Agent)
	}
	b.bot = db.Scope{House: b.home.House, Agent: b.ask(t, "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text")}
	b.ask(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member') returning role", b.bot.House, b.bot.Agent)
	var err error
	b.key, err = secret.NewKey()
	must(t, err)
	b.nextKey, err = secret.NewKey()
	must(t, err)
	b.sealer, err = secret.NewSealer(b.key, nil)
	must(t, err)
	b.next, err = secret.NewSealer(b.nextKey+" "+b.key, nil)
	must(t, err)
	return b
}

func (b *bench) ask(t *testing.T, query string, args ...any) (answer string) {
	t.Helper()
	if err := b.owner.QueryRow(t.Context(), query, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

// server returns the Secrets of one server.
func (b *bench) server(sealer *secret.Sealer) *secret.Secrets {
	return secret.New(b.DB, sealer, nil, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func set(t *testing.T, s *secret.Secrets, scope db.Scope, name, value string) {
	t.Helper()
	_, _, err := s.Set(t.Context(), scope, name, []byte(value))
	must(t, err)
}

func has(t *testing.T, s *secret.Secrets, scope db.Scope, name, want string) {
	t.Helper()
	got, err := s.Value(t.Context(), scope.House, name)
	must(t, err)
	if got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

func TestASecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.server(b.sealer)

	t.Run("is set, listed without its value, replaced and deleted", func(t *testing.T) {
		made, fresh, err := s.Set(t.Context(), b.home, "API_KEY", []byte("first-value"))
		must(t, err)
		if !fresh || made.Name != "API_KEY" || made.SetBy != b.home.Agent || made.SetByName != "Ada" || !made.Redacted || !made.UsedAt.IsZero() {
			t.Errorf("it is %+v", made)
		}
		has(t, s, b.home, "API_KEY", "first-value")
		again, fresh, err := s.Set(t.Context(), b.home, "API_KEY", []byte("first-value"))
		must(t, err)
		if fresh || !again.SetAt.Equal(made.SetAt) || again.UsedAt.IsZero() {
			t.Errorf("setting the same value again makes %+v of %+v", again, made)
		}
		changed, fresh, err := s.Set(t.Context(), b.home, "API_KEY", []byte("tiny"))
		must(t, err)
		if fresh || changed.Redacted || !changed.CreatedAt.Equal(made.CreatedAt) || !changed.SetAt.After(made.SetAt) {
			t.Errorf("a new value makes %+v of %+v", changed, made)
		}
		has(t, s, b.home, "API_KEY", "tiny")
		if n := b.ask(t, "select count(*)::text from sealed_values"); n != "1" {
			t.Errorf("%s sealed values are left, want the present one", n)
		}
		must(t, s.Delete(t.Context(), b.home, "API_KEY", false))
		must(t, s.Delete(t.Context(), b.home, "API_KEY", false)) // a retry
		if _, err := s.Value(t.Context(), b.home.House, "API_KEY"); fault.CodeOf(err) != fault.NotFound {
			t.Error(err)
		}
		if n := b.ask(t, "select count(*)::text from sealed_values"); n != "0" {
			t.Errorf("%s sealed values are left", n)
		}
	})
	t.Run("is not visible to another house", func(t *testing.T) {
		set(t, s, b.home, "SAME", "of-home")
		set(t, s, b.other, "SAME", "of-the-other")
		has(t, s, b.home, "SAME", "of-home")
		must(t, s.Delete(t.Context(), b.other, "SAME", false))
		has(t, s, b.home, "SAME", "of-home")
		list, err := s.List(t.Context(), b.other)
		must(t, err)
		if len(list) != 0 {
			t.Errorf("the other house lists %v", list)
		}
		_, err = s.Value(t.Context(), b.other.House, "SAME")
		if fault.CodeOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
	t.Run("is not available to a bot", func(t *testing.T) {
		set(t, s, b.home, "HIDDEN", "from-bots")
		_, listed := s.List(t.Context(), b.bot)
		_, _, set := s.Set(t.Context(), b.bot, "HIDDEN", []byte("overwritten"))
		_, rotated := s.Rotate(t.Context(), b.bot)
		for what, err := range map[string]error{"lists them": listed, "sets one": set, "deletes one": s.Delete(t.Context(), b.bot, "HIDDEN", true), "replaces the key": rotated} {
			if fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("it %s: %v", what, err)
			}
		}
		has(t, s, b.home, "HIDDEN", "from-bots")
	})
	t.Run("is nowhere readable in the database", func(t *testing.T) {
		set(t, s, b.home, "CANARY", "canary-in-the-coal-mine")
		if where := dbtest.Grep(t, b.owner, "canary-in-the-coal-mine"); len(where) > 0 {
			t.Errorf("it is in %v", where)
		}
	})
	t.Run("that somebody moved with SQL does not open", func(t *testing.T) {
		set(t, s, b.home, "MINE", "of-home-alone")
		set(t, s, b.other, "THEIRS", "of-the-other-alone")
		set(t, s, b.home, "RENAMED", "old-name")
		b.ask(t, "update secrets set name = 'NEW_NAME' where name = 'RENAMED' returning id")
		if got, err := s.Value(t.Context(), b.home.House, "NEW_NAME"); err == nil || strings.Contains(fault.From(err).Detail(), "old-name") {
			t.Errorf("under another name it is %q, %v", got, err)
		}
		b.ask(t, "delete from secrets where name = 'NEW_NAME' returning id")
		b.ask(t, `update sealed_values set sealed = (select v.sealed from sealed_values v join secrets s on s.vault_secret_id = v.id where s.name = 'THEIRS')
			where id = (select vault_secret_id from secrets where name = 'MINE') returning id::text`)
		if got, err := s.Value(t.Context(), b.home.House, "MINE"); err == nil {
			t.Errorf("another house's value opens as %q", got)
		}
		b.ask(t, "update house_keys set sealed = (select sealed from house_keys where house_id = $2) where house_id = $1 returning house_id", b.home.House, b.other.House)
		if got, err := s.Value(t.Context(), b.home.House, "MINE"); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("with the other house's key it is %q, %v", got, err)
		}
	})
}

func TestLimitsOfASecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.server(b.sealer)
	for _, name := range []string{"", "1KEY", "MY-KEY", "MY KEY", "KEY=value", "ARBE_TOKEN", strings.Repeat("A", 101), "sk-ant-hunter2hunter2"} {
		_, _, err := s.Set(t.Context(), b.home, name, []byte("value"))
		if fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	for what, value := range map[string][]byte{"empty": nil, "too long": bytes.Repeat([]byte("x"), secret.MaxValue+1), "not text": {0xff, 0xfe}, "with NUL": []byte("hunter2\x00")} {
		_, _, err := s.Set(t.Context(), b.home, "KEY", value)
		if fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a value that is %s: %v", what, err)
		}
	}
	long := strings.Repeat("line\n", secret.MaxValue/5)
	set(t, s, b.home, "_long_1", long)
	has(t, s, b.home, "_long_1", long)

	for i := range 14 {
		set(t, s, b.home, fmt.Sprintf("BIG_%d", i), strings.Repeat("x", secret.MaxValue))
	}
	_, _, err := s.Set(t.Context(), b.home, "ONE_MORE", []byte(strings.Repeat("x", secret.MaxValue)))
	if fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("more than a house may have: %v", err)
	}
	set(t, s, b.home, "BIG_0", strings.Repeat("y", secret.MaxValue)) // which needs no more space
}

func TestDeletingNamesTheUses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	uses := func(context.Context, pgx.Tx, string) (map[string][]secret.Use, error) {
		return map[string][]secret.Use{"API_KEY": {{Kind: "bot", Name: "@arbe"}}}, nil
	}
	s := secret.New(b.DB, b.sealer, uses, nil)
	set(t, s, b.home, "API_KEY", "some-value")
	b.ask(t, `insert into environments (house_id, name, secret_bindings) values ($1, 'build', '[{"name": "API_KEY", "required": true}]') returning id`, b.home.House)
	b.ask(t, `insert into environments (house_id, name, secret_bindings) values ($1, 'build', '[{"name": "API_KEY", "required": true}]') returning id`, b.other.House)
	b.ask(t, `insert into model_endpoints (house_id, name, base_url, secret_name) values ($1, 'lab', 'https://lab.example', 'API_KEY') returning name`, b.home.House)
	list, err := s.List(t.Context(), b.home)
	must(t, err)
	if want := []secret.Use{{Kind: "environment", Name: "build"}, {Kind: "model endpoint", Name: "lab"}, {Kind: "bot", Name: "@arbe"}}; len(list) != 1 || !slices.Equal(list[0].Uses, want) {
		t.Errorf("the list is %+v", list)
	}
	err = s.Delete(t.Context(), b.home, "API_KEY", false)
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "environment build, model endpoint lab, bot @arbe") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("deleting it: %v", err)
	}
	has(t, s, b.home, "API_KEY", "some-value")
	must(t, s.Delete(t.Context(), b.home, "API_KEY", true))
}

func TestSeveralServersSetSecretsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := b.server(b.sealer)
			for j := range 5 {
				name := fmt.Sprintf("KEY_%d", (i+j)%4)
				if _, _, err := s.Set(t.Context(), b.home, name, fmt.Appendf(nil, "value of %s", name)); err != nil {
					t.Error(fault.From(err).Detail())
				}
				if i == 0 {
					if _, err := s.Rotate(t.Context(), b.home); err != nil {
						t.Error(fault.From(err).Detail())
					}
				}
			}
		})
	}
	all.Wait()
	s := b.server(b.sealer)
	for i := range 4 {
		has(t, s, b.home, fmt.Sprintf("KEY_%d", i), fmt.Sprintf("value of KEY_%d", i))
	}
}

func TestAHousesKeyIsReplacedWhileServersRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, c := b.server(b.sealer), b.server(b.sealer)
	set(t, a, b.home, "ONE", "value-1")
	has(t, c, b.home, "ONE", "value-1") // which now caches the old key
	before := b.ask(t, "select encode(sealed, 'hex') from sealed_values")
	for range 2 { // a retry
		n, err := a.Rotate(t.Context(), b.home)
		must(t, err)
		if n != 1 {
			t.Errorf("%d values were sealed again", n)
		}
		has(t, c, b.home, "ONE", "value-1")
		set(t, c, b.home, "TWO", "value-2")
		has(t, a, b.home, "TWO", "value-2")
		must(t, c.Delete(t.Context(), b.home, "TWO", false))
	}
	if b.ask(t, "select encode(sealed, 'hex') from sealed_values") == before {
		t.Error("the value is sealed under the old key")
	}
	if n, err := a.Rotate(t.Context(), b.other); err != nil || n != 0 {
		t.Errorf("a house without secrets: %d, %v", n, err)
	}
}

func TestTheRootKeyIsReplacedWhileServersRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must1 := func(v []byte, err error) []byte { t.Helper(); must(t, err); return v }
	b.ask(t, "update sealed_settings set sealed = $1 where name = 'server_role_password' returning name", must1(b.sealer.Seal([]byte("password"))))
	b.ask(t, "insert into signing_keys (sealed) values ($1) returning id", must1(b.sealer.Seal([]byte("signs tokens"))))
	seeded, err := secret.Seed(t.Context(), b.owner, b.sealer, false)
	must(t, err)
	derived := seeded.Derive("webhook signatures")

	// Old and new servers side by side: those whose first key is the old one, and those whose first is the new one.
	both, err := secret.NewSealer(b.key+"\n"+b.nextKey, nil)
	must(t, err)
	old, changed := b.server(both), b.server(b.next)
	set(t, old, b.home, "ONE", "value-1")
	has(t, changed, b.home, "ONE", "value-1")
	set(t, changed, b.other, "TWO", "value-2") // under a house key that the new server created
	has(t, old, b.other, "TWO", "value-2")

	n, err := secret.Rewrap(t.Context(), b.owner, b.next)
	must(t, err)
	if n != 4 { // the password, the signing key, the seed, and the key of one house
		t.Errorf("%d values were changed, want 4", n)
	}
	has(t, old, b.home, "ONE", "value-1")
	has(t, changed, b.home, "ONE", "value-1")
	if n, err = secret.Rewrap(t.Context(), b.owner, b.next); n != 0 || err != nil {
		t.Errorf("a retry changes %d values: %v", n, err)
	}

	alone, err := secret.NewSealer(b.nextKey, nil)
	must(t, err)
	last := b.server(alone)
	has(t, last, b.home, "ONE", "value-1")
	has(t, last, b.other, "TWO", "value-2")
	for _, query := range []string{"select encode(sealed, 'base64') from sealed_settings where name = 'server_role_password'", "select encode(sealed, 'base64') from signing_keys"} {
		var sealed []byte
		must(t, b.owner.QueryRow(t.Context(), strings.Replace(query, "encode(sealed, 'base64')", "sealed", 1)).Scan(&sealed))
		if _, err := alone.Open(sealed); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	again, err := secret.Seed(t.Context(), b.owner, alone, false)
	must(t, err)
	if !bytes.Equal(again.Derive("webhook signatures"), derived) {
		t.Error("derived keys changed, so receivers of webhooks would refuse our signatures")
	}
	if _, err := b.server(b.sealer).Value(t.Context(), b.home.House, "ONE"); fault.CodeOf(err) != fault.Precondition {
		t.Errorf("the old key still opens: %v", err)
	}
	// With an unrelated key, nothing is changed.
	stranger, err := secret.NewKey()
	must(t, err)
	lost, err := secret.NewSealer(stranger, nil)
	must(t, err)
	if n, err := secret.Rewrap(t.Context(), b.owner, lost); n != 0 || fault.CodeOf(err) != fault.Precondition {
		t.Errorf("a stranger's key changes %d values: %v", n, err)
	}
}

func TestTheSeed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sealed, err := b.sealer.Seal([]byte("password"))
	must(t, err)
	b.ask(t, "update sealed_settings set sealed = $1 where name = 'server_role_password' returning name", sealed)
	var all sync.WaitGroup
	seeds := make([][]byte, 4)
	for i := range seeds {
		conn, err := pgx.Connect(t.Context(), b.OwnerURL)
		must(t, err)
		defer conn.Close(context.WithoutCancel(t.Context()))
		all.Go(func() {
			// The first key is new; the older version derived from the other one.
			s, err := secret.Seed(t.Context(), conn, b.next, false)
			if err != nil {
				t.Error(fault.From(err).Detail())
				return
			}
			seeds[i] = s.Derive("x")
		})
	}
	all.Wait()
	older, err := hkdf.Key(sha256.New, []byte(b.key), nil, "arbe: x", 32)
	must(t, err)
	for _, s := range seeds {
		if !bytes.Equal(s, older) {
			t.Error("a server derives another key than the older version")
		}
	}
}

func TestACommandReceivesWhatItsEnvironmentBinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.server(b.sealer)
	set(t, s, b.home, "ONE", "first-value")
	set(t, s, b.home, "OTHER", "other-value")
	set(t, s, b.other, "TWO", "of-another-house")
	bindings := []secret.Binding{{Name: "ONE", Required: true}, {Name: "TWO"}}
	got, err := s.Receive(t.Context(), b.home.House, bindings)
	must(t, err)
	if len(got.Env) != 1 || got.Env["ONE"] != "first-value" || len(got.Revisions) != 1 {
		t.Errorf("it receives %v", got)
	}
	if text := got.Redactor.String("first-value other-value"); text != "xxxxxxxxxxx other-value" {
		t.Errorf("what it writes becomes %q", text)
	}
	if list, err := s.List(t.Context(), b.home); err != nil || list[0].UsedAt.IsZero() || !list[1].UsedAt.IsZero() {
		t.Errorf("the uses are %v (%v)", list, err)
	}
	file, err := s.Receive(t.Context(), b.home.House, []secret.Binding{{Name: "ONE", File: "one.txt"}, {Name: "TWO", File: "two.txt"}})
	must(t, err)
	if len(file.Env) != 1 || file.Env["ONE"] != secret.Folder+"/one.txt" || len(file.Files) != 1 || file.Files["one.txt"] != "first-value" {
		t.Errorf("as a file it receives %v and %v", file.Env, file.Files)
	}
	if text := file.Redactor.String("first-value"); text != "xxxxxxxxxxx" {
		t.Errorf("what it writes from the file becomes %q", text)
	}
	none, err := s.Receive(t.Context(), b.home.House, nil)
	must(t, err)
	if len(none.Env) != 0 || none.Redactor != nil {
		t.Errorf("without bindings it receives %v", none)
	}
	_, err = s.Receive(t.Context(), b.home.House, []secret.Binding{{Name: "TWO", Required: true}})
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "TWO") {
		t.Errorf("a required secret is missing: %v", err)
	}

	// A server that continues the command knows the values only while they are unchanged.
	again, err := s.ReceiveAgain(t.Context(), b.home.House, got.Revisions, nil)
	must(t, err)
	if text := again.Redactor.String("first-value other-value"); text != "xxxxxxxxxxx other-value" || again.Env["ONE"] != "first-value" {
		t.Errorf("again, what it writes becomes %q", text)
	}
	again, err = s.ReceiveAgain(t.Context(), b.home.House, file.Revisions, map[string]string{"ONE": "one.txt"})
	must(t, err)
	if again.Files["one.txt"] != "first-value" || again.Env["ONE"] != file.Env["ONE"] {
		t.Errorf("again, as a file it receives %v and %v", again.Env, again.Files)
	}
	set(t, s, b.home, "ONE", "newer-value")
	for range 2 {
		again, err = s.ReceiveAgain(t.Context(), b.home.House, got.Revisions, nil)
		must(t, err)
		if text := again.Redactor.String("first-value"); text != "xxxxxxxxxxx" {
			t.Errorf("after a change, what it writes becomes %q", text)
		}
		must(t, s.Delete(t.Context(), b.home, "ONE", true))
	}
	for _, name := range []string{"A", "B", "C"} {
		set(t, s, b.home, name, strings.Repeat(name+"bcd", 12<<10))
	}
	_, err = s.Receive(t.Context(), b.home.House, []secret.Binding{{Name: "A"}, {Name: "B"}, {Name: "C"}})
	if fault.CodeOf(err) != fault.Precondition {
		t.Errorf("a command receives 144 KiB: %v", err)
	}
}

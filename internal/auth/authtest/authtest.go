// Package authtest has every kind of principal with its credentials, and reads the tables that specify what each may do
// through a door. Because the test of a door checks every cell of its table, a new kind of principal needs a column in
// each table, and a new operation a line.
package authtest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Principals are the columns of a permission table, in order.
//
//	nobody     no credential
//	unknown    a credential that does not exist, or that somebody forged
//	expired    an expired credential
//	revoked    a revoked credential
//	outsider   a person of another house
//	member     a member of the house, with a key for all their houses or a browser session
//	owner      an owner of the house
//	bot        a bot of the house, with its key
//	house-key  a member's key that is limited to the house
//	owner-key  an owner's key that is limited to the house
//	elsewhere  a member's key that is limited to another house of theirs
//	token      a bot's token for the thread in question
//	reader     such a token that may only read
//	writer     such a token that may only append
//	sibling    a bot's token for another thread of the house
var Principals = []string{
	"nobody", "unknown", "expired", "revoked", "outsider", "member", "owner", "bot",
	"house-key", "owner-key", "elsewhere", "token", "reader", "writer", "sibling",
}

// Cast is every principal, around one house.
type Cast struct {
	// House is the house in question, Annex another house of its people, and Other the house of the outsider.
	House, Annex, Other           string
	Owner, Member, Bot, Outsider  string
	database                      *dbtest.Database
	owner                         *pgxpool.Pool // of the schema
	auth                          *auth.Auth
	sibling                       string
	ownerKey, memberKey, otherKey string
	houseKey, ownerHouseKey       string
	annexKey                      string
	botKey                        string
	old                           map[string]string
}

// New creates a cast in a database.
func New(t testing.TB, d *dbtest.Database, a *auth.Auth) *Cast {
	t.Helper()
	c := &Cast{database: d, auth: a}
	var err error
	c.owner, err = pgxpool.New(t.Context(), d.OwnerURL)
	must(t, err)
	t.Cleanup(c.owner.Close)
	for _, id := range []*string{&c.House, &c.Annex, &c.Other} {
		*id = c.insert(t, "insert into houses (name) values ('Home') returning id")
	}
	for _, id := range []*string{&c.Owner, &c.Member, &c.Outsider} {
		*id = c.insert(t, "insert into agents (kind, name) values ('human', 'Ada') returning id::text")
	}
	c.Bot = c.insert(t, "insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id::text")
	c.insert(t, `insert into members (house_id, agent_id, role)
		values ($1, $4, 'owner'), ($1, $5, 'member'), ($1, $6, 'member'), ($2, $4, 'owner'), ($2, $5, 'member'), ($3, $7, 'owner') returning role`,
		c.House, c.Annex, c.Other, c.Owner, c.Member, c.Bot, c.Outsider)
	c.sibling = c.Thread(t, c.House)

	for agent, key := range map[string]*string{c.Owner: &c.ownerKey, c.Member: &c.memberKey, c.Outsider: &c.otherKey} {
		*key, err = a.ReplaceKey(t.Context(), agent, "all houses")
		must(t, err)
	}
	_, c.botKey = c.key(t, c.House, c.Owner, c.Bot)
	_, c.houseKey = c.key(t, c.House, c.Member, c.Member)
	_, c.ownerHouseKey = c.key(t, c.House, c.Owner, c.Owner)
	_, c.annexKey = c.key(t, c.Annex, c.Member, c.Member)
	c.old = map[string]string{}
	c.old["session"] = c.newSession(t)
	// In the database, because no call creates a credential that has already expired.
	c.exec(t, "update login_sessions set expires_at = now() where hash = $1", digest(c.old["session"]))
	for _, end := range []string{"expires_at", "revoked_at"} {
		id, key := c.key(t, c.House, c.Member, c.Member)
		c.exec(t, "update api_keys set "+end+" = now() where id = $1", id)
		c.old[end] = key
	}
	return c
}

// Owner is a connection, or a pool of them, as the owner of the schema.
type Owner interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
}

// Heard waits until a server has received all changes of permission that others committed before. It deletes a key and
// waits until the server has received that change, because notifications arrive in commit order.
func Heard(t testing.TB, owner Owner, a *auth.Auth) {
	t.Helper()
	key := rand.Text()
	_, err := owner.Exec(t.Context(), `with a as (insert into agents (kind, name) values ('human', 'Heard') returning id)
		insert into api_keys (agent_id, name, hash) select id, 'heard', $1 from a`, digest(key))
	must(t, err)
	_, err = a.Authenticate(t.Context(), key)
	must(t, err)
	_, err = owner.Exec(t.Context(), "delete from agents using api_keys k where k.agent_id = agents.id and k.hash = $1", digest(key))
	must(t, err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := a.Authenticate(t.Context(), key); fault.CodeOf(err) == fault.Unauthenticated {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not receive a change of permission")
		}
	}
}

// Thread creates a chat with an empty log, and returns its id.
func (c *Cast) Thread(t testing.TB, house string) string {
	t.Helper()
	return c.insert(t, `
		with id as (select generate_short_id() as id),
		     s as (insert into streams (house_id, name) select $1, 'arbe-thread-' || id from id)
		insert into threads (id, house_id, stream_id) select id, $1, 'arbe-thread-' || id from id returning id`, house)
}

// Key creates a key that is limited to a house, for a person in it, and returns the ids of both.
func (c *Cast) Key(t testing.TB, house string) (id, agent string) {
	t.Helper()
	agent = c.Member
	if house == c.Other {
		agent = c.Outsider
	}
	id, _ = c.key(t, house, agent, agent)
	return id, agent
}

func (c *Cast) key(t testing.TB, house, by, agent string) (id, key string) {
	t.Helper()
	key, made, err := c.auth.CreateKey(t.Context(), db.Scope{House: house, Agent: by}, auth.KeyDraft{Agent: agent, Name: "test"})
	must(t, err)
	return made.ID, key
}

func (c *Cast) newSession(t testing.TB) string {
	t.Helper()
	link, _, err := c.auth.CreateLink(t.Context(), c.Member)
	must(t, err)
	session, _, _, err := c.auth.Redeem(t.Context(), link)
	must(t, err)
	return session
}

// Token creates a token of the bot for a thread of the house.
func (c *Cast) Token(t testing.TB, thread string, scopes ...string) string {
	t.Helper()
	made, err := c.auth.CreateThreadToken(t.Context(), db.Scope{House: c.House}, thread, c.Bot, scopes)
	must(t, err)
	return made.Token
}

// Credential returns a credential for a request about a thread of the house.
type Credential func(t testing.TB, thread string) string

// Credentials returns the credentials of a principal by their names. All of them must have the same permissions.
func (c *Cast) Credentials(t testing.TB, principal string) map[string]Credential {
	t.Helper()
	is := func(credential string) Credential { return func(testing.TB, string) string { return credential } }
	token := func(scopes ...string) Credential {
		return func(t testing.TB, thread string) string { return c.Token(t, thread, scopes...) }
	}
	forged := func(change func(header, claims map[string]any)) Credential {
		return func(t testing.TB, thread string) string { return c.Forge(t, c.Token(t, thread), change) }
	}
	signed := func(sign func(signature string) string) Credential {
		return func(t testing.TB, thread string) string {
			token := c.Token(t, thread)
			end := strings.LastIndex(token, ".") + 1
			return token[:end] + sign(token[end:])
		}
	}
	all := map[string]map[string]Credential{
		"nobody": {"nothing": is("")},
		"unknown": {
			"a made-up key":                       is("arbe_" + strings.Repeat("0", 64)),
			"a made-up session":                   is(strings.Repeat("a", 52)),
			"a text that only looks like a token": is("a.b.c"),
			"a token with a wrong signature":      signed(mirror),
			"a token without a signature":         signed(func(string) string { return "" }),
			"a token that claims to be unsigned":  forged(func(header, _ map[string]any) { header["alg"] = "none" }),
			"a token of another algorithm":        forged(func(header, _ map[string]any) { header["alg"] = "HS512" }),
			"a token of another issuer":           forged(func(_, claims map[string]any) { claims["iss"] = "evil" }),
			"a token that never expires":          forged(func(_, claims map[string]any) { delete(claims, "exp") }),
			"a token without a key":               forged(func(header, _ map[string]any) { delete(header, "kid") }),
			"a token under a made-up key":         forged(func(header, _ map[string]any) { header["kid"] = "nosuchkey\x00" }),
		},
		"expired": {
			"a session": is(c.old["session"]), "a key": is(c.old["expires_at"]),
			"a token": forged(func(_, claims map[string]any) { claims["exp"] = time.Now().Add(-time.Second).Unix() }),
		},
		"revoked": {
			"a key": is(c.old["revoked_at"]),
			"a token": func(t testing.TB, _ string) string {
				thread := c.Thread(t, c.House)
				token := c.Token(t, thread)
				c.exec(t, "update threads set token_epoch = default where id = $1", thread)
				return token
			},
		},
		"outsider":  {"a key": is(c.otherKey)},
		"member":    {"a key": is(c.memberKey), "a session": func(t testing.TB, _ string) string { return c.newSession(t) }},
		"owner":     {"a key": is(c.ownerKey)},
		"bot":       {"a key": is(c.botKey)},
		"house-key": {"a key": is(c.houseKey)},
		"owner-key": {"a key": is(c.ownerHouseKey)},
		"elsewhere": {"a key": is(c.annexKey)},
		"token":     {"a token": token()},
		"reader":    {"a token": token(auth.StreamRead)},
		"writer":    {"a token": token(auth.StreamWrite)},
		"sibling":   {"a token": func(t testing.TB, _ string) string { return c.Token(t, c.sibling) }},
	}
	if all[principal] == nil {
		t.Fatalf("there is no principal %q", principal)
	}
	return all[principal]
}

// Forge changes the content of a token, and signs it with arbe's own key, so that only the change can make it invalid.
func (c *Cast) Forge(t testing.TB, token string, change func(header, claims map[string]any)) string {
	t.Helper()
	parts := strings.Split(token, ".")
	var said [2]map[string]any
	for i := range said {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		must(t, err)
		must(t, json.Unmarshal(text, &said[i]))
	}
	var sealed []byte
	must(t, c.owner.QueryRow(t.Context(), "select sealed from signing_keys where id = $1", said[0]["kid"]).Scan(&sealed))
	key, err := c.database.Sealer.Open(sealed)
	must(t, err)
	change(said[0], said[1])
	for i := range said {
		text, err := json.Marshal(said[i])
		must(t, err)
		parts[i] = base64.RawURLEncoding.EncodeToString(text)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(parts[0] + "." + parts[1]))
	return parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// mirror reverses a text, so that a signature keeps its form but is not valid.
func mirror(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// Table parses a table of the outcome of each operation for each principal. Its first line has the principals. Each other
// line has an operation, whose name may contain spaces, and an outcome for each principal. Lines that begin with # are
// comments.
func Table(t testing.TB, text string) map[string]map[string]string {
	t.Helper()
	table := map[string]map[string]string{}
	var columns []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case columns == nil:
			if columns = words; !slices.Equal(columns, Principals) {
				t.Fatalf("the table's columns are %v, want %v", columns, Principals)
			}
		case len(words) <= len(columns):
			t.Fatalf("a line of the table is too short: %s", line)
		default:
			name := strings.Join(words[:len(words)-len(columns)], " ")
			if table[name] != nil {
				t.Fatalf("the table has two lines of %s", name)
			}
			table[name] = map[string]string{}
			for i, outcome := range words[len(words)-len(columns):] {
				table[name][columns[i]] = outcome
			}
		}
	}
	return table
}

// Complete asserts that a table has a line for each operation and no others.
func Complete(t testing.TB, table map[string]map[string]string, operations []string) {
	t.Helper()
	for _, name := range operations {
		if table[name] == nil {
			t.Errorf("the table has no line for %s", name)
		}
	}
	for name := range maps.Keys(table) {
		if !slices.Contains(operations, name) {
			t.Errorf("the table has a line for %s, which does not exist", name)
		}
	}
}

func (c *Cast) insert(t testing.TB, statement string, args ...any) (value string) {
	t.Helper()
	if err := c.owner.QueryRow(t.Context(), statement, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func (c *Cast) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if tag, err := c.owner.Exec(t.Context(), statement, args...); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%s: %d rows, %v", statement, tag.RowsAffected(), err)
	}
}

func digest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

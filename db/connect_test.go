package db_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// TestAConnectionThatCannotBeMadeSaysWhy tries DATABASE_URLs with a mistake, most of them on a real Postgres.
func TestAConnectionThatCannotBeMadeSaysWhy(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := d.Owner(t)
	var suffix, database string
	if err := owner.QueryRow(t.Context(), "select oid::text, datname from pg_database where datname = current_database()").Scan(&suffix, &database); err != nil {
		t.Fatal(err)
	}
	// with returns the owner's URL for another role, which has the password hunter2.
	base, err := url.Parse(d.OwnerURL)
	if err != nil {
		t.Fatal(err)
	}
	with := func(role, password, path, query string) string {
		u := *base
		u.User = url.UserPassword(role, password)
		if password == "" {
			u.User = url.User(role)
		}
		u.Path, u.RawQuery = "/"+path, query
		return u.String()
	}
	guest, mute, full := "guest_"+suffix, "mute_"+suffix, "full_"+suffix
	execute(t, owner, fmt.Sprintf("create role %s login password 'hunter2'; create role %s nologin password 'hunter2'; create role %s login password 'hunter2' connection limit 0; grant connect on database %s to %[3]s, %[2]s",
		guest, mute, full, database))
	t.Cleanup(func() {
		execute(t, owner, fmt.Sprintf("revoke all on database %s from %s, %s; drop role %[2]s; drop role %[3]s; drop role %s", database, mute, full, guest))
	})
	execute(t, owner, "revoke connect on database "+database+" from public")

	for name, c := range map[string]struct {
		url  string
		code fault.Code
		says []string
	}{
		"a wrong password":          {with(guest, "hunter3", database, ""), fault.Precondition, []string{"refuses the password of the role", guest}},
		"no password":               {with(guest, "", database, ""), fault.Precondition, []string{"requires a password", "DATABASE_URL has none"}},
		"a database that is not":    {with(base.User.Username(), password(base), "nowhere", ""), fault.Precondition, []string{`no database "nowhere"`, "createdb"}},
		"a role without the right":  {with(guest, "hunter2", database, ""), fault.Precondition, []string{guest, "may not connect to the database", database}},
		"a role that cannot log in": {with(mute, "hunter2", database, ""), fault.Precondition, []string{mute, "may not log in"}},
		"too many connections":      {with(full, "hunter2", database, ""), fault.Unavailable, []string{"accepts no more connections", full, "max_connections"}},
		"TLS that is refused":       {with(guest, "hunter2", database, "sslmode=require"), fault.Precondition, []string{"accepts no TLS connections", "sslmode"}},
		"a certificate of nobody":   {"postgres://arbe:hunter2@" + untrustedPostgres(t) + "/arbe?sslmode=verify-full", fault.Precondition, []string{"authority that this machine does not trust", "sslrootcert"}},
		"no such host":              {"postgres://arbe:hunter2@nowhere.invalid/arbe", fault.Unavailable, []string{"host", "nowhere.invalid"}},
		"a port where nothing is":   {"postgres://arbe:hunter2@127.0.0.1:1/arbe", fault.Unavailable, []string{"no Postgres listens at 127.0.0.1:1"}},
		"no such socket":            {"postgres://arbe:hunter2@/arbe?host=/nowhere", fault.Unavailable, []string{"no socket of a Postgres in /nowhere"}},
		"a server that hangs up":    {"postgres://arbe:hunter2@" + silentServer(t) + "/arbe?sslmode=disable", fault.Unavailable, []string{"broke off", "check that a PostgreSQL listens there"}},
	} {
		t.Run(name, func(t *testing.T) {
			for does, try := range map[string]func() error{
				"migrating": func() error { return db.MigrateSchema(t.Context(), c.url) },
				"opening": func() error {
					opened, err := db.Open(t.Context(), c.url, db.Options{})
					if err == nil {
						opened.Close()
					}
					return err
				},
			} {
				err := try()
				wants(t, err, c.code)
				for _, part := range c.says {
					if err != nil && !strings.Contains(err.Error(), part) {
						t.Errorf("%s says %q, which does not name %q", does, err, part)
					}
				}
				if detail := fault.From(err).Detail(); strings.Contains(detail, "hunter") {
					t.Errorf("%s repeats the password: %s", does, detail)
				}
			}
		})
	}
}

func password(u *url.URL) string {
	p, _ := u.User.Password()
	return p
}

// silentServer accepts connections and closes them, as a server that is not Postgres might.
func silentServer(t *testing.T) (address string) {
	t.Helper()
	return listen(t, func(net.Conn) {})
}

// untrustedPostgres begins TLS as Postgres does, with a certificate from an untrusted authority.
func untrustedPostgres(t *testing.T) (address string) {
	t.Helper()
	signed := httptest.NewUnstartedServer(nil)
	signed.StartTLS()
	t.Cleanup(signed.Close)
	certificates := signed.TLS.Certificates
	return listen(t, func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil { // the request for TLS
			return
		}
		if _, err := conn.Write([]byte("S")); err != nil {
			return
		}
		_ = tls.Server(conn, &tls.Config{Certificates: certificates}).Handshake() // the client ends it
	})
}

// listen serves each connection with f, and then closes it.
func listen(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn)
			}()
		}
	}()
	return l.Addr().String()
}

package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/internal/fault"
)

// explainConnect says why a connection could not be made, for the operator who set DATABASE_URL. It names the role,
// database and host, and never the password. If the operator has to change something, the error is a
// [fault.Precondition]; if it may pass by itself, a [fault.Unavailable].
func explainConnect(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case !ok:
		return unreachable(err)
	}
	c := attempt{failed.Config}
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return c.refused(refusal).Because(err)
	}
	if f := c.untrusted(err); f != nil {
		return f.Because(err)
	}
	return c.unreached(err).Because(err)
}

// attempt describes a failed attempt to connect.
type attempt struct{ *pgconn.Config }

// server returns the address or addresses of the Postgres server that was tried.
func (a attempt) server() string {
	at := []string{address(a.Host, a.Port)}
	for _, other := range a.Fallbacks { // one for each further host, and for each attempt without TLS
		if next := address(other.Host, other.Port); next != at[len(at)-1] {
			at = append(at, next)
		}
	}
	return strings.Join(at, ", ")
}

func address(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// refused explains an error that Postgres itself reported.
func (a attempt) refused(said *pgconn.PgError) *fault.Error {
	role, database := strconv.Quote(a.User), strconv.Quote(a.Database)
	cannot := func(next, format string, args ...any) *fault.Error {
		return fault.Newf(fault.Precondition, next, format, args...)
	}
	switch {
	case said.Code == pgerrcode.InvalidPassword && a.Password == "":
		return cannot("add the password: DATABASE_URL=postgres://user:password@host:5432/database",
			"the Postgres at %s requires a password for the role %s, and DATABASE_URL has none", a.server(), role)
	case said.Code == pgerrcode.InvalidPassword:
		return cannot("correct the user and the password in DATABASE_URL; characters such as @ : / are written as %40 %3A %2F",
			"the Postgres at %s refuses the password of the role %s", a.server(), role)
	case said.Code == pgerrcode.InvalidAuthorizationSpecification && strings.Contains(said.Message, "does not exist"):
		return cannot("correct the user in DATABASE_URL, or create the role", "the Postgres at %s has no role %s", a.server(), role)
	case said.Code == pgerrcode.InvalidAuthorizationSpecification && strings.Contains(said.Message, "not permitted to log in"):
		return cannot("correct the user in DATABASE_URL, or give the role LOGIN", "the role %s may not log in to the Postgres at %s", role, a.server())
	case said.Code == pgerrcode.InvalidAuthorizationSpecification && strings.Contains(said.Message, "certificate"):
		return cannot("add sslcert=FILE and sslkey=FILE to DATABASE_URL", "the Postgres at %s requires a TLS client certificate", a.server())
	case said.Code == pgerrcode.InvalidAuthorizationSpecification && (strings.Contains(said.Message, "no encryption") || strings.Contains(said.Message, "SSL off")):
		return cannot("add sslmode=require to DATABASE_URL; if it is there already, add a line for them to pg_hba.conf",
			"the Postgres at %s lets the role %s connect to the database %s only with TLS, or not at all from this machine", a.server(), role, database)
	case said.Code == pgerrcode.InvalidAuthorizationSpecification:
		return cannot("add a line for them to pg_hba.conf, or correct DATABASE_URL",
			"the Postgres at %s does not let the role %s connect to the database %s from this machine", a.server(), role, database)
	case said.Code == pgerrcode.InvalidCatalogName:
		return cannot("create it (createdb), or correct the name in DATABASE_URL", "the Postgres at %s has no database %s", a.server(), database)
	case said.Code == pgerrcode.InsufficientPrivilege:
		return cannot("grant connect on that database to the role, or correct DATABASE_URL", "the role %s may not connect to the database %s", role, database)
	case said.Code == pgerrcode.ObjectNotInPrerequisiteState:
		return cannot("allow them (alter database … allow_connections true), or correct the name in DATABASE_URL",
			"the Postgres at %s accepts no connections to the database %s", a.server(), database)
	case said.Code == pgerrcode.TooManyConnections:
		return fault.Newf(fault.Unavailable, "end other clients, or raise max_connections or the connection limit of the role or the database",
			"the Postgres at %s accepts no more connections of the role %s to the database %s", a.server(), role, database)
	case strings.HasPrefix(said.Code, "57P"):
		return fault.Newf(fault.Unavailable, "try again in a moment", "the Postgres at %s is starting or shutting down", a.server())
	case said.Code == pgerrcode.ProtocolViolation:
		return cannot("point DATABASE_URL at PostgreSQL itself: a pooler that shares sessions supports neither session locks nor notifications",
			"the server at %s refuses session settings, as a connection pooler does", a.server())
	}
	return fault.Newf(fault.Unavailable, "read the log of Postgres", "the Postgres at %s refuses the connection (SQLSTATE %s)", a.server(), said.Code)
}

// untrusted explains a TLS failure; it returns nil for any other error.
func (a attempt) untrusted(err error) *fault.Error {
	is := func(next, what string) *fault.Error {
		return fault.Newf(fault.Precondition, next, "the Postgres at %s %s", a.server(), what)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return is("use the name that the certificate is for, or sslmode=verify-ca, in DATABASE_URL", "shows a TLS certificate for another name")
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return is("add sslrootcert=FILE, with the certificate of that authority, to DATABASE_URL", "shows a TLS certificate of an authority that this machine does not trust")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return is("renew the certificate of Postgres, and check the clocks", "shows a TLS certificate that is not valid, or no longer")
	}
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	switch {
	case strings.Contains(err.Error(), "server refused TLS connection"): // pgconn has no type for it
		return is("turn ssl on in Postgres, or take sslmode out of DATABASE_URL", "accepts no TLS connections, and DATABASE_URL asks for one")
	case record || alert:
		return is("check sslmode in DATABASE_URL, and the log of Postgres", "and this program do not agree on a TLS connection")
	}
	return nil
}

// unreached explains why there was no answer.
func (a attempt) unreached(err error) *fault.Error {
	is := func(next, format string, args ...any) *fault.Error {
		return fault.Newf(fault.Unavailable, next, format, args...)
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return is("correct the host in DATABASE_URL", "there is no host %s", name.Name)
	} else if ok {
		return is("try again in a moment; check the name servers of this machine", "the address of the host %s cannot be found", name.Name)
	}
	var timeout net.Error
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(a.Host, "/"):
		return is("start Postgres, or correct the host in DATABASE_URL", "there is no socket of a Postgres in %s", a.Host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return is("start Postgres, or correct the host and the port in DATABASE_URL", "no Postgres listens at %s", a.server())
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return is("check the network, and the host in DATABASE_URL", "this machine has no route to %s", a.server())
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return is("check that Postgres runs, and that no firewall blocks the connection", "the Postgres at %s does not answer", a.server())
	}
	return is("check that a PostgreSQL listens there, and the host and the port in DATABASE_URL", "the connection to %s broke off", a.server())
}

func unreachable(err error) error {
	return fault.New(fault.Unavailable, "the database cannot be reached",
		"try again in a moment; if it stays, ask the operator to check DATABASE_URL and that Postgres runs").WithReason(fault.DatabaseDown).Because(err)
}

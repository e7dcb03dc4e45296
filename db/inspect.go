package db

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Inspection is the result of [Inspect].
type Inspection struct {
	// Version is the version of Postgres, such as "17.2".
	Version string
	// Migrated is the last applied migration, and Latest this program's last one. Migrated is 0 in an empty database.
	Migrated, Latest int64
	// Foreign is the error with which [Migrate] refuses a database of another development build; nil for other
	// databases.
	Foreign error
	// Took is how long the database took for the fastest of a few answers. Skew is how far its clock is ahead of this
	// machine's, to within Took.
	Took, Skew time.Duration
	// Connections is the number of open connections, and MaxConnections their limit, both for the whole Postgres.
	Connections, MaxConnections int
	// Bytes is the size of the database. Parts are the parts that grow, the largest first.
	Bytes int64
	Parts []Part
	// Fullest is the house whose logs are the largest, and LogBytes their size; empty if no log was measured.
	Fullest  string
	LogBytes int64
	// Busiest is the person or bot, other than an owner, that wrote most in a house, BusiestHouse the house, and MemberLogBytes how
	// much; empty if nobody did.
	Busiest, BusiestHouse string
	MemberLogBytes        int64
	// Role is the role of the servers; empty if none has started yet. Excess describes the rights that it must not
	// have; empty if its rights are correct.
	Role, Excess string
}

// Part is a part of a database that grows.
type Part struct {
	Name  string
	Bytes int64
}

// Inspect looks at the database at ownerURL and changes nothing.
func Inspect(ctx context.Context, ownerURL string) (in Inspection, err error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return in, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, look := range []func(context.Context, *pgx.Conn) error{in.server, in.migrations, in.sizes, in.logs, in.role} {
		if err := look(ctx, conn); err != nil {
			return in, Explain(err)
		}
	}
	return in, nil
}

func (in *Inspection) server(ctx context.Context, conn *pgx.Conn) error {
	// The fastest of several answers tells the distance. The first one includes the preparation of the statement, and any
	// of them can be slow because a machine is busy.
	for i := range 5 {
		var now time.Time
		began := time.Now()
		if err := conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		if took := time.Since(began); i == 0 || took < in.Took {
			in.Took, in.Skew = took, now.Sub(began.Add(took/2))
		}
	}
	return conn.QueryRow(ctx, `select split_part(current_setting('server_version'), ' ', 1), current_setting('max_connections')::int,
		(select count(*) from pg_stat_activity where backend_type = 'client backend')`).Scan(&in.Version, &in.MaxConnections, &in.Connections)
}

func (in *Inspection) migrations(ctx context.Context, conn *pgx.Conn) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	for of, err := files.First(); ; of, err = files.Next(of) {
		if errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		in.Latest = int64(of)
	}
	if in.Migrated, err = lastApplied(ctx, conn); err != nil {
		return err
	}
	if err = checkApplied(ctx, conn, files); fault.CodeOf(err) == fault.Precondition {
		in.Foreign, err = err, nil
	}
	return err
}

func (in *Inspection) sizes(ctx context.Context, conn *pgx.Conn) error {
	if err := conn.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&in.Bytes); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `
		select case
				when n.nspname = $1 then 'jobs'
				when c.relname like 'entries%' then 'log'
				when c.relname like 'entry\_words%' then 'search'
				when c.relname = 'blob_chunks' then 'artifacts'
				else 'other tables' end as part,
			sum(pg_total_relation_size(c.oid))::bigint as bytes
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname in ('public', $1) group by part order by bytes desc`, JobSchema)
	if err != nil {
		return err
	}
	in.Parts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Part])
	return err
}

func (in *Inspection) logs(ctx context.Context, conn *pgx.Conn) error {
	var measured bool
	if err := conn.QueryRow(ctx, "select to_regclass('public.log_sizes') is not null").Scan(&measured); err != nil || !measured {
		return err
	}
	err := conn.QueryRow(ctx, "select house_id, sum(bytes)::bigint from public.log_sizes group by 1 order by 2 desc limit 1").Scan(&in.Fullest, &in.LogBytes)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err := conn.QueryRow(ctx, "select to_regclass('public.log_shares') is not null").Scan(&measured); err != nil || !measured {
		return err
	}
	err = conn.QueryRow(ctx, `
		select coalesce(a.name, l.agent_id::text), l.house_id, sum(l.bytes)::bigint from public.log_shares l left join public.agents a on a.id = l.agent_id
		where not exists (select from public.members m where m.house_id = l.house_id and m.agent_id = l.agent_id and m.role = 'owner')
		group by l.agent_id, a.name, l.house_id order by 3 desc limit 1`).Scan(&in.Busiest, &in.BusiestHouse, &in.MemberLogBytes)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func (in *Inspection) role(ctx context.Context, conn *pgx.Conn) error {
	err := conn.QueryRow(ctx, `
		select r.rolname, concat_ws(', ',
			case when r.rolsuper then 'is a superuser' end,
			case when r.rolbypassrls then 'bypasses row-level security' end,
			case when r.rolcreaterole or r.rolcreatedb then 'may create roles or databases' end,
			case when exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
				where n.nspname in ('public', $1) and c.relkind in ('r', 'p') and pg_has_role(r.oid, c.relowner, 'member')) then 'owns tables' end)
		from pg_roles r where r.rolname = (select 'arbe_server_' || oid from pg_database where datname = current_database())`, JobSchema).Scan(&in.Role, &in.Excess)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// ExistingServerURL returns the URL for the servers' role in the migrated database at ownerURL. The sealer opens the
// role's password. It creates no role.
func ExistingServerURL(ctx context.Context, ownerURL string, sealer Sealer) (string, error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var role string
	var sealed []byte
	err = conn.QueryRow(ctx, `select 'arbe_server_' || oid, (select sealed from sealed_settings where name = $1) from pg_database where datname = current_database()`,
		rolePassword).Scan(&role, &sealed)
	if err != nil {
		return "", Explain(err)
	}
	password, err := sealer.Open(sealed)
	return withUser(ownerURL, role, string(password)), err
}

// TryServerRole logs in as the servers do, and checks that their role sees no house unless one is set. The error says
// what is wrong.
func TryServerRole(ctx context.Context, serverURL string) error {
	database, err := Open(ctx, serverURL, Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer database.Close()
	var houses int
	if err := database.Pool().QueryRow(ctx, "select count(*) from houses").Scan(&houses); err != nil {
		return Explain(err)
	}
	if houses > 0 {
		return fault.Newf(fault.Precondition, "stop the servers, and compare the rights of their role and the policies of the tables with db/schema.sql", "the servers' role sees %d houses without being told which", houses)
	}
	return nil
}

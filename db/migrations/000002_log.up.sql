-- The log: one row per stream, and its entries, append-only and hash-partitioned (DESIGN §4). Each thread has a stream.
-- Clients also create and name streams (the stream door), with a lifetime, idempotent producers and forks.

create table streams (
  id              bigint generated always as identity primary key,
  house_id        text not null references houses (id) on delete cascade,
  name            text not null,
  content_type    text not null default 'application/json',
  closed_at       timestamptz,
  created_at      timestamptz not null default now(),
  ttl_seconds     bigint check (ttl_seconds >= 0),
  expires_at      timestamptz,
  last_stream_seq text,
  deleted_at      timestamptz,
  source_id       bigint,
  fork_seq        bigint check (fork_seq >= 0),
  fork_sub        bigint check (fork_sub >= 0),
  paused_at       timestamptz,
  unique (house_id, name),
  unique (house_id, id),
  check (num_nulls(source_id, fork_seq, fork_sub) in (0, 3)),
  check (ttl_seconds is null or expires_at is not null),
  foreign key (house_id, source_id) references streams (house_id, id) -- keeps a source while it has forks
);
comment on table streams is 'A log. The log of a thread is named arbe-thread-{thread id}. A writer holds the lock of this row until commit, so positions have no gaps and follow commit order. The stream ends at its last entry; there is no counter.';
comment on column streams.ttl_seconds is 'How long it lives after its last use, which updates expires_at. If it is null, expires_at does not change.';
comment on column streams.last_stream_seq is 'The Stream-Seq of the last append that had one.';
comment on column streams.deleted_at is 'It was deleted, but forks still read its entries. It is removed with the last fork.';
comment on column streams.source_id is 'The stream that it was forked from. Entries before fork_seq belong to the source, later ones to the fork.';
comment on column streams.fork_seq is 'The last inherited entry. The fork has a copy of it, so that its end can be found among its own entries.';
comment on column streams.fork_sub is 'How far after an offset of the source the fork was requested: in messages for JSON, otherwise in bytes.';
comment on column streams.paused_at is 'When its thread was closed: new chats and commands are refused. Unlike closed_at it is cleared, when the thread is reopened.';
create index on streams (source_id) where source_id is not null;
create index on streams (expires_at) where expires_at is not null;

alter table streams enable row level security;
create policy tenant on streams to arbe_app using (house_id = current_house());
grant select on streams to arbe_app;
grant insert (house_id, name, content_type, ttl_seconds, expires_at, source_id, fork_seq, fork_sub) on streams to arbe_app;
grant update (expires_at, last_stream_seq) on streams to arbe_app;

create table entries (
  stream_id       bigint not null, -- references streams, see delete_entries_of_stream
  seq             bigint not null check (seq > 0),
  house_id        text not null,
  id              text not null,
  author_agent_id uuid,
  type            text not null,
  payload         json not null,
  ts              timestamptz not null,
  primary key (stream_id, seq),
  unique (stream_id, id)
) partition by hash (stream_id);
comment on table entries is 'The entries of all logs. Only append_entries, append_batch and append_one write them; they are deleted only with their stream.';
comment on column entries.payload is 'json and not jsonb: the text stays exact, and reads are faster.';

do $$ begin
  for i in 0..15 loop
    execute format('create table entries_%s partition of entries for values with (modulus 16, remainder %s)', i, i);
  end loop;
end $$;

alter table entries enable row level security;
-- In a subquery the house is evaluated once per statement and not once per row, which makes reading a page a third
-- faster.
create policy tenant on entries to arbe_app using (house_id = (select current_house()));
grant select on entries to arbe_app;

create function entries_are_append_only() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  -- Entries are deleted only with their stream, whose row is gone by then.
  if tg_op = 'DELETE' and not exists (select from streams where id = old.stream_id) then
    return old;
  end if;
  raise exception 'entries are append-only' using errcode = 'restrict_violation',
    hint = 'write a new entry; delete the thread to delete its log';
end $$;
create trigger append_only before update or delete on entries
  for each row execute function entries_are_append_only();

create function entries_cannot_be_truncated() returns trigger language plpgsql
  set search_path = public, pg_temp as $$
begin
  raise exception 'entries are append-only' using errcode = 'restrict_violation';
end $$;
-- Partitions do not inherit statement triggers, so each has its own.
do $$ begin
  for i in 0..15 loop
    execute format('create trigger no_truncate before truncate on entries_%s for each statement execute function entries_cannot_be_truncated()', i);
  end loop;
end $$;
create trigger no_truncate before truncate on entries
  for each statement execute function entries_cannot_be_truncated();
create trigger no_truncate before truncate on streams -- it would leave the entries
  for each statement execute function entries_cannot_be_truncated();

-- There is no foreign key: it would look up the stream of every entry, which costs a third of the append rate. Instead,
-- the functions that write entries lock the row of their stream, and the deletion of a stream, which waits for that
-- lock, deletes its entries.
create function delete_entries_of_stream() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  delete from entries where stream_id = old.id;
  return null;
end $$;
create trigger delete_entries after delete on streams
  for each row execute function delete_entries_of_stream();

-- Producers number their appends, so that an append that is sent twice is written once.
create table producers (
  stream_id bigint not null,
  house_id  text not null,
  name      text not null,
  epoch     bigint not null check (epoch >= 0),
  seq       bigint not null check (seq >= 0),
  closed    boolean not null default false,
  primary key (stream_id, name),
  foreign key (house_id, stream_id) references streams (house_id, id) on delete cascade
);
comment on table producers is 'The last append of each idempotent producer of a stream.';
comment on column producers.closed is 'Whether that append closed the stream.';
create index on producers (house_id, stream_id);
alter table producers enable row level security;
create policy tenant on producers to arbe_app using (house_id = current_house());
grant select, insert, update on producers to arbe_app;

-- Two rules that several functions share: who may write to a house's streams, and where the entries of a fork are. Both
-- are bound to their objects and inlined into the calling statements, so there is no call per row.

-- Returns the author if they may not write to a house's streams. Only its members may, and arbe itself, which is null.
create function stranger_to(p_house text, p_author uuid) returns table (author uuid) language sql stable begin atomic
  select p_author where p_author is not null and not exists (select from members m where m.house_id = p_house and m.agent_id = p_author);
end;

-- Returns the streams that hold the entries of a stream: each from position first and before position before. The last
-- one is the stream itself.
create function lineage(p_stream bigint) returns table (id bigint, first bigint, before bigint) language sql stable begin atomic
  with recursive line (id, source_id, first, before) as (
    select s.id, s.source_id, coalesce(s.fork_seq, 0), 9223372036854775807 from streams s where s.id = p_stream
    union all
    select s.id, s.source_id, coalesce(s.fork_seq, 0), least(l.before, l.first) from line l join streams s on s.id = l.source_id
  )
  select l.id, l.first, l.before from line l where l.first < l.before;
end;

-- Forks. A fork begins with a copy of the last entry that it inherits, so that a query for its end needs to know
-- nothing of forks.
create function begin_fork() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  if new.fork_seq > 0 then
    insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
    select new.id, e.seq, new.house_id, e.id, e.author_agent_id, e.type, e.payload, e.ts
      from lineage(new.source_id) l join entries e on e.stream_id = l.id and e.seq = new.fork_seq
      where l.first <= new.fork_seq and new.fork_seq < l.before;
    if not found then
      raise exception 'a fork begins at an entry of its source' using errcode = 'check_violation', constraint = 'streams_fork_seq_there';
    end if;
  end if;
  return null;
end $$;
create trigger begin_fork after insert on streams
  for each row when (new.source_id is not null) execute function begin_fork();

-- inherited_entries finds inherited entries by id in the streams that a fork comes from. It leaves out the last
-- inherited entry, because the fork has a copy of it.
create function inherited_entries(p_stream bigint, p_ids text[]) returns setof entries
  language sql stable set search_path = public, pg_temp as $$
  select e.* from lineage(p_stream) l join entries e on e.stream_id = l.id and e.id = any (p_ids) and e.seq >= l.first and e.seq < l.before
    where l.id <> p_stream
$$;

-- Deleting the last fork of a deleted stream deletes that stream, and so on up the line.
create function collect_fork_source() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  -- Take the lock first, so that of two forks deleted at the same time the second sees that the first is gone.
  perform from streams where id = old.source_id for update;
  delete from streams s where s.id = old.source_id and s.deleted_at is not null
    and not exists (select from streams f where f.source_id = s.id);
  return null;
end $$;
create trigger collect_source after delete on streams
  for each row when (old.source_id is not null) execute function collect_fork_source();

-- Appending. append_entries adds drafts at the end of one stream of the current house, in order, and notifies the tails
-- on commit. A draft whose id exists already, in the stream or inherited, is not written again: its row is the existing
-- entry. It returns one row per draft, numbered in their order (ord). It does not find a deleted stream, which only
-- forks read. It refuses new chats and commands of a paused stream, but not existing ones: a retry gets the entry of the
-- first write. It bypasses RLS, and therefore checks house, stream and authors itself.
create function append_entries(
  p_stream text, p_ids text[], p_authors uuid[], p_types text[], p_payloads json[]
) returns table (
  ord bigint, stream_id bigint, seq bigint, id text, author_agent_id uuid, type text, payload json, ts timestamptz
) language plpgsql volatile security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
declare
  s streams;
  tail bigint;
  stranger uuid;
  added bigint;
  happened timestamptz;
  inherited text[] := '{}';
begin
  -- Take the lock first, so that later statements see every entry committed before it was granted.
  select * into s from streams where house_id = current_house() and name = p_stream and deleted_at is null for no key update;
  if not found then
    raise exception 'no stream %', p_stream using errcode = 'no_data_found';
  end if;
  happened := clock_timestamp(); -- after the lock, so that times grow with positions
  if s.closed_at is not null then
    raise exception 'stream % is closed', p_stream using errcode = 'object_not_in_prerequisite_state';
  end if;
  select t.author into stranger from unnest(p_authors) a, stranger_to(s.house_id, a) t limit 1;
  if found then
    raise exception 'agent % is not in this house', stranger using errcode = 'insufficient_privilege';
  end if;

  tail := coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0);
  if s.source_id is not null then
    inherited := array(select i.id from inherited_entries(s.id, p_ids) i);
  end if;

  if s.paused_at is not null and exists (
    select from unnest(p_ids, p_types) d (id, type) where d.type in ('chat', 'command') and d.id <> all (inherited)
      and not exists (select from entries e where e.stream_id = s.id and e.id = d.id))
  then
    raise exception 'the thread of stream % is closed', p_stream using errcode = 'AR002';
  end if;

  -- Most ids are new. One insert that assumes so is several times as fast as a check first; the subtransaction rolls it
  -- back if an id exists or occurs twice.
  begin
    if inherited <> '{}' then
      raise unique_violation;
    end if;
    insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
    select s.id, tail + d.ord, s.house_id, d.id, d.author, d.type, d.payload, happened
      from unnest(p_ids, p_authors, p_types, p_payloads) with ordinality d (id, author, type, payload, ord);
    get diagnostics added = row_count;
    return query
      select d.ord, s.id, tail + d.ord, d.id, d.author, d.type, d.payload, happened
        from unnest(p_ids, p_authors, p_types, p_payloads) with ordinality d (id, author, type, payload, ord);
  exception when unique_violation then
    insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
    select s.id, tail + row_number() over (order by d.ord), s.house_id, d.id, d.author, d.type, d.payload, happened
      from (
        select distinct on (d.id) d.*
          from unnest(p_ids, p_authors, p_types, p_payloads) with ordinality d (id, author, type, payload, ord)
          where not exists (select from entries e where e.stream_id = s.id and e.id = d.id) and d.id <> all (inherited)
          order by d.id, d.ord
      ) d;
    get diagnostics added = row_count;
    return query
      select d.ord, e.stream_id, e.seq, e.id, e.author_agent_id, e.type, e.payload, e.ts
        from unnest(p_ids) with ordinality d (id, ord)
        join entries e on e.stream_id = s.id and e.id = d.id;
    if inherited <> '{}' then
      return query
        select d.ord, s.id, e.seq, e.id, e.author_agent_id, e.type, e.payload, e.ts
          from unnest(p_ids) with ordinality d (id, ord)
          join inherited_entries(s.id, inherited) e on e.id = d.id;
    end if;
  end;

  if added > 0 then
    perform pg_notify('arbe_stream', s.id || ':' || (tail + added));
  end if;
end $$;

-- append_batch writes the drafts of many callers to streams of any houses. p_streams (ascending), p_houses and p_tails
-- name the streams and the tails after which to append; a null tail is unknown. The other arrays are the drafts: the
-- index of their stream (p_of), their position after its tail (p_nth), and their contents.
--
-- It waits for no lock, so it cannot be blocked or deadlock: it skips streams that are locked and returns them in busy.
-- It returns a stream in refused if the stream is not in its house, is closed or paused (batches hold only chats), has an
-- author who is not in its house, or is a fork that was sent an inherited id; it writes nothing to such a stream, and
-- append_entries reports the reason. A wrong tail violates the primary key and an existing id the unique key: then it
-- writes nothing at all.
--
-- It bypasses RLS, and therefore checks stream, house and author of every row. A transaction with the scope of a house
-- uses append_entries instead. It sends no notification: the server that wrote the batch notifies the others after the
-- commit. A notification would take a lock that all notifying transactions of the cluster share, and hold it while the
-- commit waits for the disk.
create function append_batch(
  p_streams bigint[], p_houses text[], p_tails bigint[],
  p_of int[], p_nth int[], p_ids text[], p_authors uuid[], p_types text[], p_payloads json[],
  out tails bigint[], out busy bigint[], out refused bigint[], out happened timestamptz
) language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  locked bigint[];
  houses text[];
  forks bigint[];
  skipped bigint[];
begin
  if current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  -- Take the locks first, so that later statements see every entry committed before they were granted.
  select array_agg(id), array_agg(house_id), array_agg(id) filter (where source_id is not null) into locked, houses, forks from (
    select id, house_id, source_id from streams where id = any (p_streams) and closed_at is null and paused_at is null
      order by id for no key update skip locked) s;
  happened := clock_timestamp();
  busy := '{}';
  refused := '{}';
  if locked is distinct from p_streams or houses <> p_houses or exists (
    select from unnest(p_of, p_authors) d (of, author), stranger_to(p_houses[d.of], d.author))
  then
    select coalesce(array_agg(p.id) filter (where s.id is not null), '{}'), coalesce(array_agg(p.id) filter (where s.id is null), '{}')
      into busy, refused from unnest(p_streams, p_houses) p (id, house)
      left join streams s on s.id = p.id and s.house_id = p.house and s.closed_at is null and s.paused_at is null
      where s.id is null or p.id <> all (coalesce(locked, '{}'));
    refused := refused || array(
      select distinct p_streams[d.of] from unnest(p_of, p_authors) d (of, author), stranger_to(p_houses[d.of], d.author));
  end if;
  if forks is not null then
    refused := refused || array(
      select f from unnest(forks) f where exists (
        select from inherited_entries(f, array(select d.id from unnest(p_of, p_ids) d (of, id) where p_streams[d.of] = f))));
  end if;
  skipped := busy || refused;

  tails := p_tails;
  if array_position(p_tails, null) > 0 then
    tails := array(
      select coalesce(p.tail, (select max(e.seq) from entries e where e.stream_id = p.id), 0)
        from unnest(p_streams, p_tails) with ordinality p (id, tail, n) order by n);
  end if;

  insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
  select p_streams[d.of], tails[d.of] + d.nth, p_houses[d.of], d.id, d.author, d.type, d.payload, happened
    from unnest(p_of, p_nth, p_ids, p_authors, p_types, p_payloads) d (of, nth, id, author, type, payload)
    where p_streams[d.of] <> all (skipped);
end $$;

-- append_one is append_batch for one entry whose position is known, as a lone writer needs it. It returns the time of
-- the entry, or null if nothing was written: the stream is locked, or something is wrong that append_batch will report.
-- A p_seq that is not the next one violates the primary key, an existing id the unique key.
--
-- It gives the same guarantees and makes the same checks as append_batch, in one statement, because each further
-- statement would cost a lone writer a tenth of its commit. A writer that locks the stream after another writer has a
-- p_seq that is taken. A check for a gap before p_seq would cost an eighth of the commit, so the caller looks up every
-- tail again after a new connection.
create function append_one(
  p_stream bigint, p_house text, p_seq bigint, p_id text, p_author uuid, p_type text, p_payload json, out happened timestamptz
) language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
  if current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
  select p_stream, p_seq, p_house, p_id, p_author, p_type, p_payload, clock_timestamp()
    from (
      select from streams where id = p_stream and house_id = p_house and closed_at is null and paused_at is null
        and not exists (select from stranger_to(p_house, p_author))
        and (source_id is null or not exists (select from inherited_entries(p_stream, array[p_id])))
        for no key update skip locked
    ) locked
  returning ts into happened;
end $$;

-- Returns where streams of any house end, and which of them are closed. It returns no row for a deleted stream, even
-- while forks keep it. A server checks all streams that it has tails on at once, and learns nothing but positions.
create function stream_tails(p_ids bigint[]) returns table (id bigint, tail bigint)
  language sql stable security definer set search_path = public, pg_temp as $$
  select s.id, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0) from streams s
    where s.id = any (p_ids) and s.deleted_at is null
$$;
create function closed_streams(p_ids bigint[]) returns setof bigint
  language sql stable security definer set search_path = public, pg_temp as $$
  select id from streams where id = any (p_ids) and closed_at is not null and deleted_at is null
$$;

-- Deleting and closing. delete_stream deletes a stream for good or, if it has forks, hides it from everything but them.
create function delete_stream(p_id bigint) returns void language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform from streams where id = p_id for update; -- prevents new forks
  if exists (select from streams where source_id = p_id) then
    update streams set deleted_at = now(), closed_at = coalesce(closed_at, now()) where id = p_id and deleted_at is null;
    perform pg_notify('arbe_stream', p_id || ':deleted');
  else
    delete from streams where id = p_id;
  end if;
end $$;

-- delete_own_stream is delete_stream for a transaction in the scope of the stream's house.
create function delete_own_stream(p_id bigint) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  select delete_stream(id) from streams where id = p_id and house_id = current_house()
$$;

-- close_own_stream closes a stream of the transaction's house. A closed stream cannot be reopened.
create function close_own_stream(p_id bigint) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update streams set closed_at = now() where id = p_id and house_id = current_house() and closed_at is null
$$;

-- Notifies the tails of a deleted stream, as an append does.
create function notify_stream_deleted() returns trigger language plpgsql
  set search_path = public, pg_temp as $$
begin
  perform pg_notify('arbe_stream', old.id || ':deleted');
  return null;
end $$;
create trigger notify_deleted after delete on streams
  for each row execute function notify_stream_deleted();

-- Notifies the tails of a closed stream, after its last entry.
create function notify_stream_closed() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform pg_notify('arbe_stream', new.id || ':' || coalesce((select max(seq) from entries where stream_id = new.id), 0));
  perform pg_notify('arbe_stream', new.id || ':closed');
  return null;
end $$;
create trigger notify_closed after update of closed_at on streams
  for each row when (old.closed_at is null and new.closed_at is not null and new.deleted_at is null) execute function notify_stream_closed();

-- For streams of any house, a server records use and deletes expired ones. It learns nothing by that. Locked rows are
-- skipped until the next time.
create function touch_streams(p_ids bigint[], p_times timestamptz[]) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update streams s set expires_at = greatest(s.expires_at, t.time + make_interval(secs => s.ttl_seconds))
    from unnest(p_ids, p_times) t (id, time)
    where s.id = t.id and s.id in (select l.id from streams l where l.id = any (p_ids) and l.ttl_seconds is not null for no key update skip locked)
$$;
create function delete_expired_streams(p_before timestamptz) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  select delete_stream(id) from (
    select id from streams where expires_at < least(p_before, now()) and deleted_at is null limit 1000 for update skip locked) e
$$;

-- Postgres does not check the right to execute a trigger function when the trigger fires. Without the right, nobody can
-- put these functions on a table of their own, where they would act with their owner's rights.
revoke execute on function entries_are_append_only, entries_cannot_be_truncated, delete_entries_of_stream, begin_fork,
  collect_fork_source, notify_stream_deleted, notify_stream_closed from public;
revoke execute on function stranger_to, lineage, inherited_entries, append_entries, append_batch, append_one, stream_tails, closed_streams,
  delete_stream, delete_own_stream, close_own_stream, touch_streams, delete_expired_streams from public;
grant execute on function lineage, inherited_entries, append_entries, append_batch, append_one, stream_tails, closed_streams,
  delete_own_stream, close_own_stream, touch_streams, delete_expired_streams to arbe_app;

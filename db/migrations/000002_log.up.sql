-- The log: one row per stream, and its entries, append-only and hash-partitioned (DESIGN §4).

create table streams (
  id            bigint generated always as identity primary key,
  house_id      text not null references houses (id) on delete cascade,
  name          text not null,
  content_type  text not null default 'application/json',
  closed_at     timestamptz,
  created_at    timestamptz not null default now(),
  unique (house_id, name)
);
comment on table streams is 'A log. A thread''s is named arbe-thread-{thread id}. Who writes into it holds the lock of this row until commit: that makes positions gapless and their order commit order. It ends where its last entry is; there is no counter.';

alter table threads add foreign key (house_id, stream_id) references streams (house_id, name);

create table entries (
  stream_id       bigint not null, -- references streams, see below
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
comment on table entries is 'The records of all logs. Written by append_entries and append_batch alone; deleted only with their stream.';
comment on column entries.payload is 'json, not jsonb: the text stays exact and reads are faster.';

do $$ begin
  for i in 0..15 loop
    execute format('create table entries_%s partition of entries for values with (modulus 16, remainder %s)', i, i);
  end loop;
end $$;

create function entries_are_append_only() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  -- The deletion of their stream is the one way out: by then its row is gone.
  if tg_op = 'DELETE' and not exists (select from streams where id = old.stream_id) then
    return old;
  end if;
  raise exception 'entries are append-only' using errcode = 'restrict_violation',
    hint = 'write a new entry; delete the thread to delete its log';
end $$;
create trigger append_only before update or delete on entries
  for each row execute function entries_are_append_only();

create function entries_cannot_be_truncated() returns trigger language plpgsql as $$
begin
  raise exception 'entries are append-only' using errcode = 'restrict_violation';
end $$;
-- A statement's trigger is not inherited: each partition has its own.
do $$ begin
  for i in 0..15 loop
    execute format('create trigger no_truncate before truncate on entries_%s for each statement execute function entries_cannot_be_truncated()', i);
  end loop;
end $$;
create trigger no_truncate before truncate on entries
  for each statement execute function entries_cannot_be_truncated();
create trigger no_truncate before truncate on streams -- which would leave their entries
  for each statement execute function entries_cannot_be_truncated();

-- A foreign key would ask for the stream of every single entry, which costs a third of the appends. Both
-- functions that write entries hold the lock of their stream's row instead, and its deletion, which waits for
-- that lock, takes the entries with it.
create function delete_entries_of_stream() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  delete from entries where stream_id = old.id;
  return null;
end $$;
create trigger delete_entries after delete on streams
  for each row execute function delete_entries_of_stream();

-- append_entries writes drafts behind the end of one stream of the current house, in order, and tells
-- the tails with the commit. A draft whose id is there already is not written again: its row is the
-- first write's. It returns one row per draft, numbered in their order (ord). It runs past RLS, and
-- therefore checks house, stream and authors itself.
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
begin
  -- The lock comes first: statements after it see every entry committed before it was granted.
  select * into s from streams where house_id = current_house() and name = p_stream for no key update;
  if not found then
    raise exception 'no stream %', p_stream using errcode = 'no_data_found';
  end if;
  happened := clock_timestamp(); -- not before the lock, or times would not grow with positions
  if s.closed_at is not null then
    raise exception 'stream % is closed', p_stream using errcode = 'object_not_in_prerequisite_state';
  end if;
  select a into stranger from unnest(p_authors) a
    where a is not null and not exists (select from members m where m.house_id = s.house_id and m.agent_id = a) limit 1;
  if found then
    raise exception 'agent % is not in this house', stranger using errcode = 'insufficient_privilege';
  end if;

  tail := coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0);

  -- New ids are by far the most common, and one insert that trusts in them is several times as fast as
  -- asking first; the subtransaction takes it back when an id is there, or comes twice.
  begin
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
          where not exists (select from entries e where e.stream_id = s.id and e.id = d.id)
          order by d.id, d.ord
      ) d;
    get diagnostics added = row_count;
    return query
      select d.ord, e.stream_id, e.seq, e.id, e.author_agent_id, e.type, e.payload, e.ts
        from unnest(p_ids) with ordinality d (id, ord)
        join entries e on e.stream_id = s.id and e.id = d.id;
  end;

  if added > 0 then
    perform pg_notify('arbe_stream', s.id || ':' || (tail + added));
  end if;
end $$;
revoke execute on function append_entries from public;
grant execute on function append_entries to arbe_app;

-- append_batch writes the drafts of many callers, into streams of any houses, and tells the tails with the
-- commit. p_streams, ascending, with p_houses, p_tails and p_counts say where they go: to how many behind
-- which tail, null where it is not known. The other arrays are the drafts: into which of the streams (p_of),
-- as which behind its tail (p_nth), and what.
--
-- It waits for no lock, so it can neither be held up nor deadlock: drafts for a stream that someone has locked
-- are left out, and the stream is one of busy. A stream is one of refused when it is not in its house, is
-- closed, or is written to by someone who is not in its house; nothing is written into it either, and
-- append_entries will say why. A tail that is not the true one breaks the primary key, an id that is there
-- the other one: then nothing at all is written.
--
-- It runs past RLS, and therefore checks stream, house and author of every row; a transaction that looks
-- with the eyes of one house has append_entries.
create function append_batch(
  p_streams bigint[], p_houses text[], p_tails bigint[], p_counts int[],
  p_of int[], p_nth int[], p_ids text[], p_authors uuid[], p_types text[], p_payloads json[],
  out tails bigint[], out busy bigint[], out refused bigint[], out happened timestamptz
) language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  locked bigint[];
  houses text[];
  skipped bigint[];
begin
  if current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  -- The locks come first: statements after this one see every entry committed before they were granted.
  select array_agg(id), array_agg(house_id) into locked, houses from (
    select id, house_id from streams where id = any (p_streams) and closed_at is null
      order by id for no key update skip locked) s;
  happened := clock_timestamp();
  busy := '{}';
  refused := '{}';
  if locked is distinct from p_streams or houses <> p_houses or exists (
    select from unnest(p_of, p_authors) d (of, author)
      where author is not null and not exists (select from members m where m.house_id = p_houses[d.of] and m.agent_id = d.author))
  then
    select coalesce(array_agg(p.id) filter (where s.id is not null), '{}'), coalesce(array_agg(p.id) filter (where s.id is null), '{}')
      into busy, refused from unnest(p_streams, p_houses) p (id, house)
      left join streams s on s.id = p.id and s.house_id = p.house and s.closed_at is null
      where s.id is null or p.id <> all (coalesce(locked, '{}'));
    refused := refused || array(
      select distinct p_streams[d.of] from unnest(p_of, p_authors) d (of, author)
        where author is not null and not exists (select from members m where m.house_id = p_houses[d.of] and m.agent_id = d.author));
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

  -- As many as surely fit into the 8000 bytes of a notification.
  perform pg_notify('arbe_stream', string_agg(p.id || ':' || tails[p.n] + p_counts[p.n], ','))
    from unnest(p_streams) with ordinality p (id, n) where p.id <> all (skipped) group by p.n / 190;
end $$;
revoke execute on function append_batch from public;
grant execute on function append_batch to arbe_app;

-- Where these streams end, whatever house they are in; a deleted one has no row. A server checks on all
-- the streams it has tails on in one go, and learns nothing but positions.
create function stream_tails(p_ids bigint[]) returns table (id bigint, tail bigint)
  language sql stable security definer set search_path = public, pg_temp as $$
  select s.id, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0) from streams s where s.id = any (p_ids)
$$;
revoke execute on function stream_tails from public;
grant execute on function stream_tails to arbe_app;

-- A thread takes its log with it, whatever deletes the thread.
create function delete_stream_of_thread() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  delete from streams where house_id = old.house_id and name = old.stream_id;
  return null;
end $$;
create trigger delete_stream after delete on threads
  for each row execute function delete_stream_of_thread();

-- Tails of a deleted stream are told, as they are of an append.
create function tell_stream_deleted() returns trigger language plpgsql as $$
begin
  perform pg_notify('arbe_stream', old.id || ':deleted');
  return null;
end $$;
create trigger tell_deleted after delete on streams
  for each row execute function tell_stream_deleted();

-- A trigger's function is called by its trigger, which asks nobody's leave: nobody may put it on a table
-- of their own, where it would act with its owner's rights.
revoke execute on function delete_stream_of_thread, delete_entries_of_stream, tell_stream_deleted, entries_are_append_only, entries_cannot_be_truncated from public;

alter table streams enable row level security;
alter table entries enable row level security;
create policy tenant on streams to arbe_app using (house_id = current_house());
-- As a subquery the house is asked for once a statement, not once a row: a page reads a third faster.
create policy tenant on entries to arbe_app using (house_id = (select current_house()));

grant select on streams, entries to arbe_app;
grant insert (house_id, name, content_type) on streams to arbe_app;

-- Threads that are forks of threads, and logs that know by its id what they inherited.

alter table threads
  add column forked_from_id text,
  add column forked_at_seq  bigint check (forked_at_seq >= 0),
  add check (forked_from_id is null or forked_at_seq is not null),
  add foreign key (house_id, forked_from_id) references threads (house_id, id) on delete set null (forked_from_id);
comment on column threads.forked_from_id is 'The thread it is a fork of; null when it is none, and once that one was deleted.';
comment on column threads.forked_at_seq is 'The last entry it has in common with that thread; null when it is no fork.';
create index on threads (forked_from_id) where forked_from_id is not null;

-- inherited_entries finds those of some ids that a fork inherited, where they are: in the streams it comes from.
-- The last one it inherited is not among them: of that one it has a copy itself.
create function inherited_entries(p_stream bigint, p_ids text[]) returns setof entries
  language sql stable set search_path = public, pg_temp as $$
  with recursive line (id, source_id, first, before) as (
    select s.id, s.source_id, coalesce(s.fork_seq, 0), 9223372036854775807 from streams s where s.id = p_stream
    union all
    select s.id, s.source_id, coalesce(s.fork_seq, 0), least(l.before, l.first) from line l join streams s on s.id = l.source_id
  )
  select e.* from line l join entries e on e.stream_id = l.id and e.id = any (p_ids) and e.seq >= l.first and e.seq < l.before
    where l.id <> p_stream
$$;
revoke execute on function inherited_entries from public;
grant execute on function inherited_entries to arbe_app;

-- append_entries as before, but an id that a fork inherited is one that is there already, and a deleted stream,
-- which only its forks read, is none.
create or replace function append_entries(
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
  -- The lock comes first: statements after it see every entry committed before it was granted.
  select * into s from streams where house_id = current_house() and name = p_stream and deleted_at is null for no key update;
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
  if s.source_id is not null then
    inherited := array(select i.id from inherited_entries(s.id, p_ids) i);
  end if;

  -- New ids are by far the most common, and one insert that trusts in them is several times as fast as
  -- asking first; the subtransaction takes it back when an id is there, or comes twice.
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

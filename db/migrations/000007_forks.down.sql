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

drop function inherited_entries;

alter table threads
  drop column forked_from_id,
  drop column forked_at_seq;

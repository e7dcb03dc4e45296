drop trigger pause_stream on threads;
drop function pause_stream_of_thread;

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

create or replace function append_batch(
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
    select id, house_id, source_id from streams where id = any (p_streams) and closed_at is null
      order by id for no key update skip locked) s;
  happened := clock_timestamp();
  busy := '{}';
  refused := '{}';
  if locked is distinct from p_streams or houses <> p_houses or exists (
    select from unnest(p_of, p_authors) d (of, author), stranger_to(p_houses[d.of], d.author))
  then
    select coalesce(array_agg(p.id) filter (where s.id is not null), '{}'), coalesce(array_agg(p.id) filter (where s.id is null), '{}')
      into busy, refused from unnest(p_streams, p_houses) p (id, house)
      left join streams s on s.id = p.id and s.house_id = p.house and s.closed_at is null
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

create or replace function append_one(
  p_stream bigint, p_house text, p_seq bigint, p_id text, p_author uuid, p_type text, p_payload json, out happened timestamptz
) language plpgsql volatile security definer as $$
begin
  if public.current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  insert into public.entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
  select p_stream, p_seq, p_house, p_id, p_author, p_type, p_payload, pg_catalog.clock_timestamp()
    from (
      select from public.streams where id operator(pg_catalog.=) p_stream and house_id operator(pg_catalog.=) p_house and closed_at is null
        and not exists (select from public.stranger_to(p_house, p_author))
        and (source_id is null or not exists (select from public.inherited_entries(p_stream, array[p_id])))
        for no key update skip locked
    ) locked
  returning ts into happened;
end $$;

alter table streams drop column paused_at;

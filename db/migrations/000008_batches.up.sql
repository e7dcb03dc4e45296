-- Batches of appends tell nobody: the server that wrote one tells the others after its commit. A notification takes
-- a lock that all notifying transactions of the cluster share, and holds it while the disk is waited for.

drop function append_batch;

-- append_batch writes the drafts of many callers, into streams of any houses. p_streams, ascending, with p_houses
-- and p_tails say where they go: behind which tail, null where it is not known. The other arrays are the drafts:
-- into which of the streams (p_of), as which behind its tail (p_nth), and what.
--
-- It waits for no lock, so it can neither be held up nor deadlock: drafts for a stream that someone has locked
-- are left out, and the stream is one of busy. A stream is one of refused when it is not in its house, is
-- closed, is written to by someone who is not in its house, or is a fork that is sent an id it inherited; nothing
-- is written into it either, and append_entries will say why. A tail that is not the true one breaks the primary
-- key, an id that is there the other one: then nothing at all is written.
--
-- It runs past RLS, and therefore checks stream, house and author of every row; a transaction that looks
-- with the eyes of one house has append_entries.
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

  -- The locks come first: statements after this one see every entry committed before they were granted.
  select array_agg(id), array_agg(house_id), array_agg(id) filter (where source_id is not null) into locked, houses, forks from (
    select id, house_id, source_id from streams where id = any (p_streams) and closed_at is null
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

-- append_one is append_batch for a batch of one entry whose place is known: what a lone writer waits for. It
-- returns when the entry happened, or null when nothing was written: someone has the stream locked, or
-- something is wrong that append_batch will tell. A p_seq that is not the next one breaks the primary key, an
-- id that is there the other one.
--
-- It promises and checks what append_batch does, in one statement: each one more would cost a lone writer a
-- tenth of the commit that it waits for. Who locks the stream after another writer has a p_seq that is taken.
-- To set the search_path would cost as much as the insert: it says by itself where everything is, to the
-- last operator, and so means the same under any path.
create function append_one(
  p_stream bigint, p_house text, p_seq bigint, p_id text, p_author uuid, p_type text, p_payload json
) returns timestamptz language plpgsql volatile security definer as $$
declare
  happened timestamptz;
begin
  if public.current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  insert into public.entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
  select p_stream, p_seq, p_house, p_id, p_author, p_type, p_payload, pg_catalog.clock_timestamp()
    from (
      select from public.streams where id operator(pg_catalog.=) p_stream and house_id operator(pg_catalog.=) p_house and closed_at is null
        and (p_author is null or exists (
          select from public.members m where m.house_id operator(pg_catalog.=) p_house and m.agent_id operator(pg_catalog.=) p_author))
        and (source_id is null or not exists (select from public.inherited_entries(p_stream, array[p_id])))
        for no key update skip locked
    ) locked
  returning ts into happened;
  return happened;
end $$;
revoke execute on function append_batch, append_one from public;
grant execute on function append_batch, append_one to arbe_app;

comment on table entries is 'The records of all logs. Written by append_entries, append_batch and append_one alone; deleted only with their stream.';

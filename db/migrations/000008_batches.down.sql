comment on table entries is 'The records of all logs. Written by append_entries and append_batch alone; deleted only with their stream.';
drop function append_one, append_batch;

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

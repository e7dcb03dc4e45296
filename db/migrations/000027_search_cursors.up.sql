-- Entries become searchable behind a cursor of their own, so that no decision waits for it.

create table search_cursors (
  stream_id bigint primary key,
  house_id  text not null,
  thread_id text not null,
  indexed   bigint not null check (indexed >= 0),
  unique (house_id, thread_id),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
) with (fillfactor = 50); -- so that an update stays in its page and changes no index
comment on table search_cursors is 'How far the entries of each thread are searchable. A thread without a row has no searchable entry of its own. The servers move the cursors to the end of what is decided.';
comment on column search_cursors.indexed is 'The words of entries up to this position are in entry_words, except for those that decisions.unindexed names.';
alter table search_cursors enable row level security;
create policy tenant on search_cursors to arbe_app using (house_id = (select current_house()));
grant select on search_cursors to arbe_app;

-- Before this version a decision included it. A thread that is created while this runs begins at its first entry, as new ones do.
insert into search_cursors (stream_id, house_id, thread_id, indexed)
  select d.stream_id, d.house_id, d.thread_id, d.decided from decisions d;

-- index_next makes entries of these streams of any house searchable, those of each stream in order, for about p_ms milliseconds. It returns
-- the streams that have more. Streams on which another server works are skipped, and returned. So are those of threads
-- that are being deleted. Repeating it is harmless.
create function index_next(p_streams bigint[], p_ms int) returns setof bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  began constant timestamptz := clock_timestamp();
  streams bigint[];
  behind  bigint[];
  upto    bigint[];
  ends    bigint[];
begin
  if public.current_house() is not null then
    raise exception 'the entries of many houses are not indexed in the name of one' using errcode = 'insufficient_privilege';
  end if;
  insert into public.search_cursors (stream_id, house_id, thread_id, indexed)
    select d.stream_id, d.house_id, d.thread_id, coalesce(s.fork_seq, 0) from public.decisions d
      join public.streams s on s.id = d.stream_id
      join public.threads t on t.house_id = d.house_id and t.id = d.thread_id
      where d.stream_id = any (p_streams) and not exists (select from public.search_cursors c where c.stream_id = d.stream_id)
      order by d.stream_id for key share of t skip locked
    on conflict do nothing;
  select array_agg(l.stream_id), array_agg(l.indexed), array_agg(l.decided) into streams, behind, upto from (
    select c.stream_id, c.indexed, d.decided from public.search_cursors c
      join public.decisions d on d.stream_id = c.stream_id
      join public.threads t on t.house_id = c.house_id and t.id = c.thread_id
      where c.stream_id = any (p_streams) and d.decided > c.indexed
      order by c.stream_id for no key update of c skip locked for key share of t skip locked
  ) l;
  -- A little of each at a time, so that a long thread does not hold up the others. Long texts take milliseconds each.
  while behind <> upto and clock_timestamp() < began + make_interval(secs => p_ms / 1000.0) loop
    select array_agg(least(m.behind + greatest(50 / cardinality(streams), 1), m.upto) order by m.ord) into ends
      from unnest(behind, upto) with ordinality m (behind, upto, ord);
    perform public.index_entries(streams, behind, ends);
    behind := ends;
  end loop;
  update public.search_cursors c set indexed = m.behind
    from unnest(streams, behind) m (stream_id, behind) where c.stream_id = m.stream_id;
  return query
    select d.stream_id from public.decisions d
      join public.streams s on s.id = d.stream_id
      left join public.search_cursors c on c.stream_id = d.stream_id
      where d.stream_id = any (p_streams) and d.decided > coalesce(c.indexed, s.fork_seq, 0);
end $$;

-- Returns the next streams of all threads after an id whose entries are not all searchable, in the order of ids. It looks at
-- every thread, so it is used only when a server starts or has died.
create function unindexed_after(p_after bigint, p_most int) returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id from public.decisions d
    join public.streams s on s.id = d.stream_id
    left join public.search_cursors c on c.stream_id = d.stream_id
    where d.stream_id > p_after and d.decided > coalesce(c.indexed, s.fork_seq, 0)
    order by d.stream_id limit p_most
$$;

-- chats_between returns what agents said in a stream of the current house after a position and up to another one, at most
-- p_most chats. With p_handles it leaves out those that certainly mention none of them. Most of a long log ask for nothing, so
-- it skips them here and not in the server. It is an ordered walk through the index, whatever row counts the planner expects.
create function chats_between(p_stream bigint, p_behind bigint, p_upto bigint, p_handles text[], p_most int)
  returns table (seq bigint, id text, author text, payload json, ts timestamptz)
  language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  select e.seq, e.id, e.author_agent_id::text, e.payload, e.ts from public.entries e
    where e.stream_id = p_stream and e.seq > p_behind and e.seq <= p_upto and e.type = 'chat' and e.author_agent_id is not null
      -- A handle is ASCII, in any case. JSON has its characters as they are, or escaped as \u00...
      and (p_handles is null or e.payload::text like '%\\u00%' or e.payload::text like '%@%' and lower(e.payload::text collate "C")
        like any (array(select '%@' || h || '%' from unnest(p_handles) h)))
    order by e.seq limit p_most
$$;

revoke execute on function index_entries from arbe_app; -- index_next calls it
revoke execute on function index_next, unindexed_after, chats_between from public;
grant execute on function index_next, unindexed_after, chats_between to arbe_app;

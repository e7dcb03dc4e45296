-- What was said is found by its words.

create table entry_words (
  house_id  text not null references houses (id) on delete cascade,
  thread_id text not null,
  stream_id bigint not null,
  seq       bigint not null,
  ts        timestamptz not null,
  words     tsvector not null,
  primary key (stream_id, seq),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table entry_words is 'The words of the entries that people search: chats, commands and their results. The decider adds them soon after the entries. A fork has only its own, because those before it are found in its source.';
comment on column entry_words.words is 'Of the first 64 KiB, in no language''s grammar, because a house speaks several. The word of house_word is added.';
-- Each search reads the list of pending insertions from its beginning to its end, so it is short.
create index entry_words_search on entry_words using gin (words) with (gin_pending_list_limit = 512);
create index entry_words_by_thread on entry_words (house_id, thread_id);
alter table entry_words enable row level security;
create policy tenant on entry_words to arbe_app using (house_id = (select current_house()));
grant select on entry_words to arbe_app;

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
comment on column search_cursors.indexed is 'The words of entries up to this position are in entry_words.';
alter table search_cursors enable row level security;
create policy tenant on search_cursors to arbe_app using (house_id = (select current_house()));
grant select on search_cursors to arbe_app;

-- words_of returns the words of an entry; null if people do not search it, or if its text is not one for Postgres, such as
-- one with a zero byte.
create function words_of(p_type text, p_payload json) returns tsvector
  language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  said text;
begin
  said := case p_type
    when 'chat' then p_payload->>'text'
    when 'command' then coalesce(p_payload->>'command', p_payload->>'argv')
    -- Without colours, because a word after one would begin with a part of the escape sequence.
    when 'command_result' then concat_ws(' ', regexp_replace(left(p_payload->>'output', 65536), '\x1b\[[0-9;:]*[A-Za-z]', ' ', 'g'), p_payload->>'error')
  end;
  if coalesce(said, '') = '' then
    return null;
  end if;
  return to_tsvector('simple', left(said, 65536));
exception when data_exception or program_limit_exceeded then
  return null;
end $$;

-- house_word returns a word that the entries of a house have and no text: words of texts have no spaces. With it, a search
-- in the index meets only what the house has, and not the same words of all houses.
create function house_word(p_house text) returns text
  language sql immutable set search_path = pg_catalog, pg_temp as $$ select ' ' || p_house $$;

-- index_entries adds the words of the entries of streams of any house: those after p_from up to p_to. Repeating it adds
-- nothing.
create function index_entries(p_streams bigint[], p_from bigint[], p_to bigint[]) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into public.entry_words (house_id, thread_id, stream_id, seq, ts, words)
  select d.house_id, d.thread_id, e.stream_id, e.seq, e.ts, array_to_tsvector(array[public.house_word(d.house_id)]) || w.words
    from unnest(p_streams, p_from, p_to) m (stream_id, behind, upto)
      join public.decisions d on d.stream_id = m.stream_id
        and (public.current_house() is null or d.house_id = public.current_house())
      join public.entries e on e.stream_id = m.stream_id and e.seq > m.behind and e.seq <= m.upto,
      lateral (select public.words_of(e.type, e.payload) as words) w
    where e.type in ('chat', 'command', 'command_result') and w.words is not null
  on conflict (stream_id, seq) do nothing
$$;

-- index_next makes entries of these streams of any house searchable, those of each stream in order, for about p_ms
-- milliseconds. It returns the streams that have more. Streams on which another server works are skipped, and returned. So
-- are those of threads that are being deleted. Repeating it is harmless.
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

-- search_entries returns the latest entries of the transaction's house that have all words of a query. It acts as the owner,
-- because the comparison of words is not leakproof: under the policy of the table, Postgres would use no index, and read
-- the words of all houses. Each search has a plan of its own, because words differ in how many entries have them.
create function search_entries(p_words text, p_most int)
  returns table (thread_id text, seq bigint, id text, type text, author text, payload json, ts timestamptz, thread_name text)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
  house  constant text := public.current_house();
  wanted tsquery := to_tsquery('simple', p_words);
begin
  if house is null or numnode(wanted) = 0 then -- nothing but the house's word would be all of the house
    return;
  end if;
  wanted := quote_literal(public.house_word(house))::tsquery && wanted;
  return query
    select w.thread_id, w.seq, e.id, e.type, coalesce(e.author_agent_id::text, ''), e.payload, w.ts, coalesce(t.name, '')
      from (
        select f.* from public.entry_words f
          where f.words @@ wanted -- and nothing else, so that no index leads through all of the house
          order by f.ts desc, f.stream_id desc, f.seq desc limit p_most
      ) w
        -- The word of the house keeps others' entries out already; this would, too.
        join public.entries e on e.stream_id = w.stream_id and e.seq = w.seq and e.house_id = house
        join public.threads t on t.house_id = house and t.id = w.thread_id
      where w.house_id = house
      order by w.ts desc, w.stream_id desc, w.seq desc;
end $$;

-- find_entries returns the latest entries of the transaction's house that have all words of a query and are as the filters
-- say; an empty or null filter matches everything. It acts as the owner for the same reason as search_entries.
create function find_entries(p_words text, p_from text, p_in text, p_types text[], p_failed boolean, p_after timestamptz, p_before timestamptz, p_most int)
  returns table (thread_id text, thread_name text, seq bigint, id text, type text, author text, author_name text, author_kind text, payload json, ts timestamptz)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
  house   constant text := public.current_house();
  wanted  tsquery := to_tsquery('simple', p_words);
  authors uuid[];
  threads text[];
begin
  if house is null or numnode(wanted) = 0 then -- nothing but the house's word would be all of the house
    return;
  end if;
  wanted := quote_literal(public.house_word(house))::tsquery && wanted;
  if p_from <> '' then
    authors := array(select m.agent_id from public.members m join public.agents a on a.id = m.agent_id
      left join public.bots b on b.house_id = m.house_id and b.agent_id = m.agent_id
      where m.house_id = house and case p_from when 'me' then m.agent_id = public.current_agent()
        else lower(p_from) in (lower(a.name), split_part(lower(a.name), ' ', 1), replace(lower(a.name), ' ', '-'), b.handle, m.agent_id::text) end);
  end if;
  if p_in <> '' then
    threads := array(select t.id from public.threads t
      where t.house_id = house and (t.id = p_in or lower(t.name) = lower(p_in) or length(p_in) >= 4 and starts_with(t.id, p_in)) limit 100);
  end if;
  return query
    select w.thread_id, coalesce(t.name, ''), w.seq, e.id, e.type, coalesce(e.author_agent_id::text, ''), coalesce(a.name, ''), coalesce(a.kind, ''), e.payload, w.ts
      from (
        select f.thread_id, f.stream_id, f.seq, f.ts from public.entry_words f
          where f.words @@ wanted and (threads is null or f.thread_id = any (threads))
            and (p_after is null or f.ts >= p_after) and (p_before is null or f.ts < p_before)
            and (authors is null and p_types is null and not p_failed or exists (
              select from public.entries x left join public.agents s on s.id = x.author_agent_id
                where x.stream_id = f.stream_id and x.seq = f.seq and (authors is null or x.author_agent_id = any (authors))
                  and (p_types is null or case x.type when 'command' then 'command' when 'command_result' then 'output'
                    else case s.kind when 'bot' then 'answer' else 'message' end end = any (p_types))
                  and (not p_failed or x.type = 'command_result' and coalesce(x.payload ->> 'exit_code', '') <> '0')))
          order by f.ts desc, f.stream_id desc, f.seq desc limit p_most
      ) w
        -- The word of the house keeps others' entries out already; this would, too.
        join public.entries e on e.stream_id = w.stream_id and e.seq = w.seq and e.house_id = house
        join public.threads t on t.house_id = house and t.id = w.thread_id
        left join public.agents a on a.id = e.author_agent_id
      order by w.ts desc, w.stream_id desc, w.seq desc;
end $$;

revoke execute on function words_of, house_word, index_entries, index_next, unindexed_after, search_entries, find_entries from public;
grant execute on function index_next, unindexed_after, search_entries, find_entries to arbe_app; -- index_next calls the others

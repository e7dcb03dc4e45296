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

-- What was written before there was a search is added by the servers, little by little: a migration must not take hours, nor
-- lock others out meanwhile. The default of existing rows is no update of them.
alter table decisions add column unindexed bigint not null default 9223372036854775807 check (unindexed >= 0);
alter table decisions alter column unindexed set default 0;
comment on column decisions.unindexed is 'Entries up to this position may be missing in entry_words, because they are older than the search. 0: none is.';
create index decisions_unindexed on decisions (stream_id) where unindexed > 0;

-- index_older adds the words of about so many older entries, those of the latest threads first. It returns false if there
-- are none. The threads that it works on cannot be deleted meanwhile; it skips those that are being deleted.
create function index_older(p_most int) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  d record;
  room    bigint := p_most;
  streams bigint[];
  behind  bigint[];
  upto    bigint[];
  remain  bigint[];
begin
  if public.current_house() is not null then
    raise exception 'the entries of many houses are not indexed in the name of one' using errcode = 'insufficient_privilege';
  end if;
  for d in
    select c.stream_id, least(c.unindexed, c.decided) as upto, coalesce(s.fork_seq, 0) as first
      from public.decisions c
        join public.streams s on s.id = c.stream_id
        join public.threads t on t.house_id = c.house_id and t.id = c.thread_id
      where c.unindexed > 0 order by c.stream_id desc limit 100
      for key share of t skip locked
  loop
    exit when room <= 0;
    streams := streams || d.stream_id;
    upto := upto || d.upto;
    behind := behind || greatest(d.first, d.upto - room);
    remain := remain || case when d.upto - room > d.first then d.upto - room else 0 end;
    room := room - greatest(d.upto - d.first, 1);
  end loop;
  if streams is null then
    return false;
  end if;
  perform public.index_entries(streams, behind, upto);
  -- In the order of ids, as decide_idle locks them.
  perform from public.decisions c where c.stream_id = any (streams) order by c.stream_id for no key update;
  update public.decisions c set unindexed = m.remain
    from unnest(streams, remain) m (stream_id, remain)
    where c.stream_id = m.stream_id and c.unindexed > m.remain;
  return true;
end $$;

revoke execute on function words_of, house_word, index_entries, search_entries, index_older from public;
grant execute on function index_entries, search_entries, index_older to arbe_app;

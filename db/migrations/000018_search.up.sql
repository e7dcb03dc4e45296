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
comment on column entry_words.words is 'Of the first 64 KiB, in no language''s grammar, because a house speaks several.';
create index entry_words_search on entry_words using gin (words);
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

-- index_entries adds the words of the entries of streams of any house: those after p_from up to p_to. Repeating it adds
-- nothing.
create function index_entries(p_streams bigint[], p_from bigint[], p_to bigint[]) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into public.entry_words (house_id, thread_id, stream_id, seq, ts, words)
  select d.house_id, d.thread_id, e.stream_id, e.seq, e.ts, w.words
    from unnest(p_streams, p_from, p_to) m (stream_id, behind, upto)
      join public.decisions d on d.stream_id = m.stream_id
        and (public.current_house() is null or d.house_id = public.current_house())
      join public.entries e on e.stream_id = m.stream_id and e.seq > m.behind and e.seq <= m.upto,
      lateral (select public.words_of(e.type, e.payload) as words) w
    where e.type in ('chat', 'command', 'command_result') and w.words is not null
  on conflict (stream_id, seq) do nothing
$$;

revoke execute on function words_of, index_entries from public;
grant execute on function index_entries to arbe_app;

-- The latest entries that there are, because a migration should not take hours. Older ones are found in their threads.
insert into entry_words (house_id, thread_id, stream_id, seq, ts, words)
select l.house_id, l.thread_id, l.stream_id, l.seq, l.ts, w.words
  from (
    select d.house_id, d.thread_id, e.stream_id, e.seq, e.ts, e.type, e.payload
      from decisions d
        join streams s on s.id = d.stream_id
        join entries e on e.stream_id = d.stream_id and e.seq > coalesce(s.fork_seq, 0) and e.seq <= d.decided
      where e.type in ('chat', 'command', 'command_result')
      order by e.ts desc limit 50000
  ) l, lateral (select words_of(l.type, l.payload) as words) w
  where w.words is not null
on conflict do nothing;

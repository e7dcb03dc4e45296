-- What became of messages: their authors edit and delete them. The log keeps them as they were said; these rows say what holds.

create table chat_edits (
  house_id   text not null,
  thread_id  text not null,
  stream_id  bigint not null,
  seq        bigint not null,
  entry_id   text not null,
  text       text check (octet_length(text) < 1048576),
  edits      bigint[] not null default '{}' check (cardinality(edits) <= 100),
  changed_at timestamptz not null default now(),
  primary key (stream_id, seq),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table chat_edits is 'The messages of each thread that were edited or deleted, each with what it says now. A fork has those of the messages that it shares with its source, as they were when it was made.';
comment on column chat_edits.seq is 'The position of the message, and entry_id its id.';
comment on column chat_edits.text is 'What it says now; null if it was deleted.';
comment on column chat_edits.edits is 'The positions of the entries that edited it, in order; empty in a fork.';
create index chat_edits_by_thread on chat_edits (house_id, thread_id);
alter table chat_edits enable row level security;
create policy tenant on chat_edits to arbe_app using (house_id = (select current_house()));
grant select, insert, update on chat_edits to arbe_app;

-- chat_of is the payload of a message with this text, as far as search and lists need it.
create function chat_of(p_text text) returns json
  language sql immutable set search_path = pg_catalog, pg_temp as $$ select json_build_object('text', p_text) $$;
revoke execute on function chat_of from public;

-- said_last returns who said the last message or command of a stream behind one position and up to another that was not deleted, and its
-- beginning.
create function said_last(p_stream bigint, p_behind bigint, p_upto bigint) returns table (author uuid, words text)
  language sql stable set search_path = public, pg_temp as $$
  select e.author_agent_id, said_text(e.type, case when c.text is null then e.payload else chat_of(c.text) end)
    from entries e left join chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq
    where e.stream_id = p_stream and e.seq > p_behind and e.seq <= p_upto and e.type in ('chat', 'command') and (c.seq is null or c.text is not null)
    order by e.seq desc limit 1
$$;
revoke execute on function said_last from public;

-- touch_threads leaves out entries that only say something about a message, which move no thread up.
create or replace FUNCTION public.touch_threads(p_streams bigint[]) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  return query
  with stale as (
    select t.id, t.house_id, t.stream_id, s.id as stream, e.ts, e.seq, o.ended from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (
        select l.ts, l.seq from (select ts, seq, type from entries where stream_id = s.id order by seq desc limit 500) l
          where l.type not like 'signal.chat.%' order by l.seq desc limit 1
      ) e
      cross join lateral (
        select case when t.running_agent is not null and not exists (select from turns a where a.id = t.running_id and a.ended_at is null)
          then t.running_id end as ended
      ) o
      where s.id = any (p_streams) and (t.active_at < e.ts or o.ended is not null)
  ), locked as (
    select id from threads where id in (select id from stale) for no key update skip locked
  ), working as (
    select j.args ->> 'stream' as stream_id, j.args ->> 'command' as id, null::uuid as agent, j.created_at as since from river.river_job j
      where j.queue = 'default' and j.kind = 'run_command' and j.state in ('available', 'running', 'scheduled', 'retryable')
        and j.args ->> 'stream' in (select stale.stream_id from stale)
    union all
    select stale.stream_id, a.id, a.agent_id, coalesce(a.started_at, a.created_at) from stale
      join turns a on a.house_id = stale.house_id and a.thread_id = stale.id and a.ended_at is null and a.status <> 'delayed'
  ), running as (
    select distinct on (w.stream_id) w.* from working w order by w.stream_id, w.since, w.id
  ), touched as (
    update threads t set active_at = greatest(t.active_at, stale.ts),
        name = case when asked.text is null then t.name else asked.text end,
        last_said_by = case when said.author is null then t.last_said_by else said.author end,
        last_said = case when said.author is null then t.last_said else said.words end,
        running_id = running.id, running_agent = running.agent, running_since = running.since,
        approvals = (select count(*) from approvals a where a.house_id = t.house_id and a.thread_id = t.id and a.state = 'open')
      from stale
        left join running on running.stream_id = stale.stream_id
        left join lateral said_last(stale.stream, stale.seq - 200, stale.seq) said on true
        -- A direct message is called as its agent until a person has said something in it.
        left join lateral (
          select nullif(title_of(said_text(e.type, case when c.text is null then e.payload else chat_of(c.text) end)), '') as text
            from threads d join entries e on e.stream_id = stale.stream left join chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq
            where (c.seq is null or c.text is not null) and d.id = stale.id and d.people is not null and e.type = 'chat' and e.author_agent_id = any (d.people)
              and d.name = (select a.name from agents a where a.id = d.parent_agent_id)
            order by e.seq limit 1
        ) asked on true
      where t.id = stale.id and t.id in (select locked.id from locked) and (t.active_at < stale.ts or t.running_id = stale.ended)
  )
  select stale.stream from stale where stale.id not in (select locked.id from locked);
end $$;

-- revise_thread makes what lists and searches have of a thread of the current house agree with an edit of a message in it. Lists
-- order the thread as before. The words of a message that is not searchable yet become so later.
create function revise_thread(p_thread text, p_seq bigint) returns void
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  stream bigint;
  cursor_at bigint;
  tail bigint;
begin
  select s.id into stream from threads t join streams s on s.house_id = t.house_id and s.name = t.stream_id
    where t.house_id = current_house() and t.id = p_thread for no key update of t;
  if stream is null then
    return;
  end if;
  tail := (select max(e.seq) from entries e where e.stream_id = stream);
  update threads t set last_said_by = said.author, last_said = said.words
    from (select) one left join lateral said_last(stream, least(tail, p_seq) - 200, tail) said on true
    where t.id = p_thread and (t.last_said_by, t.last_said) is distinct from (said.author, said.words);
  -- Whoever makes entries of the stream searchable holds this lock.
  select c.indexed into cursor_at from search_cursors c where c.stream_id = stream for no key update;
  delete from entry_words w where w.stream_id = stream and w.seq = p_seq;
  if cursor_at >= p_seq then
    perform index_entries(array[stream], array[p_seq - 1], array[p_seq]);
  end if;
end $$;
revoke execute on function revise_thread from public;
grant execute on function revise_thread to arbe_app;

-- index_entries has the words of messages as they are now.
create or replace function index_entries(p_streams bigint[], p_from bigint[], p_to bigint[]) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into public.entry_words (house_id, thread_id, stream_id, seq, ts, words)
  select d.house_id, d.thread_id, e.stream_id, e.seq, e.ts, array_to_tsvector(array[public.house_word(d.house_id)]) || w.words
    from unnest(p_streams, p_from, p_to) m (stream_id, behind, upto)
      join public.decisions d on d.stream_id = m.stream_id
        and (public.current_house() is null or d.house_id = public.current_house())
      join public.entries e on e.stream_id = m.stream_id and e.seq > m.behind and e.seq <= m.upto,
      lateral (
        select public.words_of(e.type, case when c.seq is null then e.payload else public.chat_of(c.text) end) as words
          from (select) one left join public.chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq and e.type = 'chat'
      ) w
    where e.type in ('chat', 'command', 'command_result') and w.words is not null
  on conflict (stream_id, seq) do nothing
$$;

-- find_entries returns messages as they are now.
create or replace FUNCTION public.find_entries(p_words text, p_from text, p_in text, p_types text[], p_failed boolean, p_after timestamp with time zone, p_before timestamp with time zone, p_most integer) RETURNS TABLE(thread_id text, thread_name text, seq bigint, id text, type text, author text, author_name text, author_kind text, payload json, ts timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
declare
  house   constant text := public.current_house();
  wanted  tsquery := to_tsquery('simple', p_words);
  authors uuid[];
  threads text[];
  me      constant uuid := public.current_agent();
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
    select w.thread_id, coalesce(t.name, ''), w.seq, e.id, e.type, coalesce(e.author_agent_id::text, ''), coalesce(a.name, ''), coalesce(a.kind, ''), case when c.text is null then e.payload else public.chat_of(c.text) end, w.ts
      from (
        select f.thread_id, f.stream_id, f.seq, f.ts from public.entry_words f
          where f.words @@ wanted and (threads is null or f.thread_id = any (threads))
            and (f.thread_id = p_in or not exists (select from public.threads d where d.id = f.thread_id and d.people is not null and not coalesce(me = any (d.people), false)))
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
        left join public.chat_edits c on c.stream_id = w.stream_id and c.seq = w.seq
      order by w.ts desc, w.stream_id desc, w.seq desc;
end $$;

-- A summary is forgotten that may have what was deleted.
grant delete on thread_summaries to arbe_app;

drop view thread_heads;
create view thread_heads with (security_invoker = true) as
select t.*, coalesce(e.seq, 0) as tail, coalesce(case when e.type like 'signal.chat.%' then t.active_at else e.ts end, t.created_at) as last_activity,
  coalesce((select a.name from agents a where a.id = t.last_said_by), '')::text as last_said_name,
  coalesce((select a.name from agents a where a.id = t.running_agent), '')::text as running_name
from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts, type from entries where entries.stream_id = s.id order by seq desc limit 1) e on true;
comment on view thread_heads is 'Threads with the end of their logs and the names of who spoke last and who works there; empty if nobody does. It shows each role the threads that it may read.';
comment on column thread_heads.tail is 'The position of the last entry; 0 if there is none.';
comment on column thread_heads.last_activity is 'When the last entry was written that is more than a change of a message or a reaction; the thread''s creation if there is none.';
grant select on thread_heads to arbe_app;

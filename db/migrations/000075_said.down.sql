drop function said_last;
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

create or replace function revise_thread(p_thread text, p_seq bigint) returns void
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

drop index entries_said;

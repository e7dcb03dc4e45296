-- touch_threads locks the threads first, and reads what was said in a second statement. In one statement, it could read the words of a
-- message that was deleted before it had the lock, and write them into the list of threads again. It returns the streams of threads that
-- others have locked.
create or replace function touch_threads(p_streams bigint[]) returns setof bigint
  language plpgsql security definer set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan as $$
declare
  mine text[];
begin
  select array_agg(l.id) into mine from (
    select t.id from streams s join threads t on t.stream_id = s.name and t.house_id = s.house_id
      where s.id = any (p_streams) order by t.id for no key update of t skip locked
  ) l;
  with stale as (
    select t.id, t.house_id, t.stream_id, s.id as stream, e.ts, e.seq, o.ended from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (
        select x.ts, x.seq from (
          (select l.ts, l.seq from (select ts, seq, type from entries where stream_id = s.id order by seq desc limit 500) l
            where l.type not like 'signal.chat.%' order by l.seq desc limit 1)
          union all
          (select ts, seq from entries where stream_id = s.id and type in ('chat', 'command') order by seq desc limit 1)
        ) x order by x.seq desc limit 1
      ) e
      cross join lateral (
        select case when t.running_agent is not null and not exists (select from turns a where a.id = t.running_id and a.ended_at is null)
          then t.running_id end as ended
      ) o
      where s.id = any (p_streams) and t.id = any (mine) and (t.active_at < e.ts or o.ended is not null)
  ), working as (
    select j.args ->> 'stream' as stream_id, j.args ->> 'command' as id, null::uuid as agent, j.created_at as since from river.river_job j
      where j.queue = 'default' and j.kind = 'run_command' and j.state in ('available', 'running', 'scheduled', 'retryable')
        and j.args ->> 'stream' in (select stale.stream_id from stale)
    union all
    select stale.stream_id, a.id, a.agent_id, coalesce(a.started_at, a.created_at) from stale
      join turns a on a.house_id = stale.house_id and a.thread_id = stale.id and a.ended_at is null and a.status <> 'delayed'
  ), running as (
    select distinct on (w.stream_id) w.* from working w order by w.stream_id, w.since, w.id
  )
  update threads t set active_at = greatest(t.active_at, stale.ts),
      name = case when asked.text is null then t.name else asked.text end,
      last_said_by = case when said.author is null then t.last_said_by else said.author end,
      last_said = case when said.author is null then t.last_said else said.words end,
      running_id = running.id, running_agent = running.agent, running_since = running.since,
      approvals = (select count(*) from approvals a where a.house_id = t.house_id and a.thread_id = t.id and a.state = 'open')
    from stale
      left join running on running.stream_id = stale.stream_id
      left join lateral said_last(stale.stream, stale.seq) said on true
      -- A direct message is called as its agent until a person has said something in it.
      left join lateral (
        select nullif(title_of(said_text(e.type, case when c.text is null then e.payload else chat_of(c.text) end)), '') as text
          from threads d join entries e on e.stream_id = stale.stream left join chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq
          where (c.seq is null or c.text is not null) and d.id = stale.id and d.people is not null and e.type = 'chat' and e.author_agent_id = any (d.people)
            and d.name = (select a.name from agents a where a.id = d.parent_agent_id)
          order by e.seq limit 1
      ) asked on true
    where t.id = stale.id;
  return query
    select s.id from streams s join threads t on t.stream_id = s.name and t.house_id = s.house_id
      where s.id = any (p_streams) and t.id <> all (coalesce(mine, '{}'));
end $$;

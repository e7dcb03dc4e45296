create or replace function touch_threads(p_streams bigint[]) returns setof bigint
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
  return query
  with stale as (
    select t.id, t.house_id, t.stream_id, s.id as stream, e.ts, e.seq, o.ended from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (select ts, seq from entries where stream_id = s.id order by seq desc limit 1) e
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
        last_said_by = case when said.seq is null then t.last_said_by else said.author_agent_id end,
        last_said = case when said.seq is null then t.last_said else said_text(said.type, said.payload) end,
        running_id = running.id, running_agent = running.agent, running_since = running.since
      from stale
        left join running on running.stream_id = stale.stream_id
        left join lateral (
          select seq, author_agent_id, type, payload from entries e
            where e.stream_id = stale.stream and e.seq > stale.seq - 200 and e.type in ('chat', 'command')
            order by seq desc limit 1
        ) said on true
      where t.id = stale.id and t.id in (select locked.id from locked) and (t.active_at < stale.ts or t.running_id = stale.ended)
  )
  select stale.stream from stale where stale.id not in (select locked.id from locked);
end $$;

alter table threads drop column approvals;

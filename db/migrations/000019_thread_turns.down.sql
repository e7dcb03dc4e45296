update threads set running_id = null, running_since = null where running_agent is not null;
create or replace function touch_threads(p_streams bigint[]) returns setof bigint
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
  return query
  with stale as (
    select t.id, t.stream_id, s.id as stream, e.ts, e.seq from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (select ts, seq from entries where stream_id = s.id order by seq desc limit 1) e
      where s.id = any (p_streams) and t.active_at < e.ts
  ), locked as (
    select id from threads where id in (select id from stale) for no key update skip locked
  ), running as (
    select distinct on (1) j.args ->> 'stream' as stream_id, j.args ->> 'command' as id, j.created_at as since from river.river_job j
      where j.queue = 'default' and j.kind = 'run_command' and j.state in ('available', 'running', 'scheduled', 'retryable')
        and j.args ->> 'stream' in (select stale.stream_id from stale)
      order by 1, j.id
  ), touched as (
    update threads t set active_at = stale.ts,
        last_said_by = case when said.seq is null then t.last_said_by else said.author_agent_id end,
        last_said = case when said.seq is null then t.last_said else said_text(said.type, said.payload) end,
        running_id = running.id, running_since = running.since
      from stale
        left join running on running.stream_id = stale.stream_id
        left join lateral (
          select seq, author_agent_id, type, payload from entries e
            where e.stream_id = stale.stream and e.seq > stale.seq - 200 and e.type in ('chat', 'command')
            order by seq desc limit 1
        ) said on true
      where t.id = stale.id and t.id in (select id from locked) and t.active_at < stale.ts
  )
  select stale.stream from stale where stale.id not in (select locked.id from locked);
end $$;

drop trigger threads_set_updated_at on threads;
create trigger threads_set_updated_at before update on threads
  for each row when (old.active_at is not distinct from new.active_at) execute function set_updated_at();
alter table threads drop column running_agent;
comment on column threads.running_id is 'The entry of the oldest command that has not ended, running or waiting; null if there is none. running_since is when it was requested.';

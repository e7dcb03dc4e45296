-- Runs of coding agents. A run is one pass of the bot that drives a thread, identified by the thread and its run_epoch. There is
-- no table of runs: the log says what happened in each of them, and the row what is needed to decide about the last one.

drop view thread_heads;

alter table threads
  add column run_epoch bigint not null default 0 check (run_epoch >= 0),
  add column run_started_at timestamptz,
  add column heartbeat_at timestamptz,
  add column run_from bigint not null default 0 check (run_from >= 0),
  add column run_through bigint not null default 0 check (run_through >= 0),
  add column run_entries bigint not null default 0,
  add column run_bytes bigint not null default 0,
  add column asked_by uuid,
  add constraint threads_runs_are_driven check (run_epoch = 0 or agent_id is not null);
comment on column threads.run_epoch is 'How many runs its bot has begun. The last one goes on while status is running. It is never set back, so that an older runner cannot be taken for a later one.';
comment on column threads.run_started_at is 'When the last run began.';
comment on column threads.heartbeat_at is 'When the runner of the last run last said that it is alive; null if it has not.';
comment on column threads.run_from is 'Where the log ended when the last run began.';
comment on column threads.run_through is 'The last chat that was given to its agent, as far as its runners said. The next run begins behind it.';
comment on column threads.run_entries is 'How many entries the last run has written, and run_bytes their size; as of its last heartbeat.';
comment on column threads.asked_by is 'Who delegated it: a person or a bot, which may have left the house since. Null for every other thread.';

create view thread_heads with (security_invoker = true) as
select t.*, coalesce(e.seq, 0) as tail, coalesce(e.ts, t.created_at) as last_activity,
  coalesce((select a.name from agents a where a.id = t.last_said_by), '')::text as last_said_name,
  coalesce((select a.name from agents a where a.id = t.running_agent), '')::text as running_name
from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true;
comment on view thread_heads is 'Threads with the end of their logs and the names of who spoke last and who works there; empty if nobody does. It shows each role the threads that it may read.';
comment on column thread_heads.tail is 'The position of the last entry; 0 if there is none.';
comment on column thread_heads.last_activity is 'When the last entry was written; the thread''s creation if there is none.';
grant select on thread_heads to arbe_app;

-- A sweep looks at all running threads, whosever they are.
create index threads_running on threads (id) where status = 'running';
create function running_threads(p_after text, p_most int) returns table (id text, house_id text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id from public.threads t where t.status = 'running' and t.id > p_after order by t.id limit p_most
$$;
revoke execute on function running_threads from public;
grant execute on function running_threads to arbe_app;

-- A heartbeat changes nothing that lists show, and comes every five seconds from each run.
drop trigger notify_change on threads;
create trigger notify_change after insert or delete on threads
  for each row execute function notify_change('thread', 'house_id', 'id');
create trigger notify_change_of_row after update on threads
  for each row when (old.heartbeat_at is not distinct from new.heartbeat_at or old.status <> new.status)
  execute function notify_change('thread', 'house_id', 'id');
drop trigger threads_set_updated_at on threads;
create trigger threads_set_updated_at before update on threads
  for each row when (not (old.active_at is distinct from new.active_at or old.running_id is distinct from new.running_id
    or old.heartbeat_at is distinct from new.heartbeat_at and old.status = new.status))
  execute function set_updated_at();

-- undecided also says who drives a thread: what is said there is said to its coding agent.
drop function undecided;
create function undecided(p_streams bigint[])
returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, driver text, roster bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, th.agent_id::text, h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;
revoke execute on function undecided from public;
grant execute on function undecided to arbe_app;

drop function undecided;
create function undecided(p_streams bigint[])
returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, roster bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;
revoke execute on function undecided from public;
grant execute on function undecided to arbe_app;
drop trigger threads_set_updated_at on threads;
create trigger threads_set_updated_at before update on threads
  for each row when (not (old.active_at is distinct from new.active_at or old.running_id is distinct from new.running_id))
  execute function set_updated_at();
drop trigger notify_change_of_row on threads;
drop trigger notify_change on threads;
create trigger notify_change after insert or delete or update on threads
  for each row execute function notify_change('thread', 'house_id', 'id');
drop function running_threads;
drop index threads_running;
drop view thread_heads;
alter table threads
  drop constraint threads_runs_are_driven,
  drop column run_epoch,
  drop column run_started_at,
  drop column heartbeat_at,
  drop column run_from,
  drop column run_through,
  drop column run_entries,
  drop column run_bytes,
  drop column asked_by;
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

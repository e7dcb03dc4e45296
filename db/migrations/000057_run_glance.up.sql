-- What lists and cards show of a driven thread's last run, so that nobody has to read its log for it.

drop view thread_heads;

alter table threads
  add column run_ended_at timestamptz,
  add column run_doing text,
  add column run_tool text,
  add column run_result text,
  add column run_cost bigint not null default 0 check (run_cost >= 0),
  add column run_cost_unknown boolean not null default false;
comment on column threads.run_ended_at is 'When the last run ended; null while it goes on.';
comment on column threads.run_doing is 'What its runner said in its last heartbeat that it does, in a few words.';
comment on column threads.run_tool is 'The tool that it called last, as of that heartbeat.';
comment on column threads.run_result is 'The beginning of the last text of its agent, or of why it failed; null while it goes on.';
comment on column threads.run_cost is 'What the models of the last run cost as of that heartbeat, or of its end, in millionths of a US dollar. run_cost_unknown: calls of models without a price count nothing in it.';

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

-- A heartbeat that says nothing new is no change.
drop trigger notify_change_of_row on threads;
create trigger notify_change_of_row after update on threads
  for each row when (old.heartbeat_at is not distinct from new.heartbeat_at or old.status <> new.status
    or old.run_doing is distinct from new.run_doing or old.run_tool is distinct from new.run_tool or old.run_cost <> new.run_cost)
  execute function notify_change('thread', 'house_id', 'id');

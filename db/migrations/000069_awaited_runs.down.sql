drop function overdue_threads;
drop view thread_heads;
alter table threads
  drop column awaited_until,
  drop column overdue;
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

-- Whoever waits for what it delegated does not wait forever.

drop view thread_heads;

alter table threads
  add column awaited_until timestamptz,
  add column overdue boolean not null default false;
comment on column threads.awaited_until is 'Until when who delegated it waits for the end of its run. Null: as long as it takes, or its last run has ended.';
comment on column threads.overdue is 'That time has passed, and who delegated it was told: the end of the run wakes nobody any more.';
create index threads_awaited on threads (awaited_until) where awaited_until is not null and not overdue;

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

-- A server looks at the threads of all houses for which somebody has waited long enough.
create function overdue_threads(p_most int) returns table (id text, house_id text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id from public.threads t where t.awaited_until <= now() and not t.overdue order by t.awaited_until limit p_most
$$;
revoke execute on function overdue_threads from public;
grant execute on function overdue_threads to arbe_app;

drop view thread_heads;
alter table threads drop column model, drop column think;
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

create or replace function charged_today() returns table (installation bigint, person bigint, reserved bigint)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  as $$
#variable_conflict use_column
begin
  return query
  with used as (
    select s.house_id, s.charged_micros as micros, 0::bigint as reserved from public.spending s where s.day = (now() at time zone 'utc')::date
    union all
    select t.house_id, t.reserved_micros, t.reserved_micros from public.turns t where t.ended_at is null and t.reserved_micros > 0
    union all
    select r.house_id, r.reserved_micros, r.reserved_micros from public.run_calls r where r.ended_at is null and r.lapses_at > now() and r.reserved_micros > 0
  )
  select coalesce(sum(u.micros), 0)::bigint,
    coalesce(sum(u.micros) filter (where h.id = public.current_house()
      or h.belongs_to = (select own.belongs_to from public.houses own where own.id = public.current_house())), 0)::bigint,
    coalesce(sum(u.reserved), 0)::bigint
  from used u join public.houses h on h.id = u.house_id;
end $$;
drop function forget_house, note_deleted_house, is_first_house;
drop table deleted_houses;
drop policy own_name on agents;
revoke update (unnamed) on agents from arbe_app;
alter table agents drop column unnamed;

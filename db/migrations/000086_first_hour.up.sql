alter table agents add column unnamed boolean not null default false;
comment on column agents.unnamed is
  'Whether arbe made up the name of a person, because nobody has said one. Pages then ask for it.';

-- The person of an installation's first start.
update agents set unnamed = true where kind = 'human' and name = 'Owner';

-- People name themselves. Nobody names another person.
create policy own_name on agents for update to arbe_app using (kind = 'human' and id = current_agent());
grant update (unnamed) on agents to arbe_app;

-- A house that its owner deletes is closed at once and emptied by a job, because providers destroy its sandboxes. This table
-- outlives it. It is the operator's: the server reaches it only through the functions below.
create table deleted_houses (
  id             text primary key,
  name           text not null,
  deleted_at     timestamptz not null default now(),
  deleted_by     uuid references agents (id) on delete set null,
  deleted_by_name text not null,
  belonged_to    uuid references agents (id) on delete set null,
  emptied_at     timestamptz,
  charged_on     date,
  charged_micros bigint not null default 0
);
create index deleted_houses_by_deleter on deleted_houses (deleted_by);
create index deleted_houses_by_person on deleted_houses (belonged_to);
create index deleted_houses_by_charge on deleted_houses (charged_on) where charged_on is not null;
comment on table deleted_houses is 'The houses that owners deleted, with the names of that time.';
comment on column deleted_houses.belonged_to is 'The person whose quotas the house used, see houses.belongs_to.';
comment on column deleted_houses.emptied_at is 'When nothing of it was left; null until then.';
comment on column deleted_houses.charged_micros is
  'What it spent on the day charged_on with keys of the installation. Otherwise nobody would have to pay for a house that is deleted.';

-- is_first_house reports whether the current house is the oldest of the installation. Its owners are the operators.
create function is_first_house() returns boolean
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return public.current_house() = (select h.id from public.houses h order by h.created_at, h.id limit 1);
end $$;
revoke execute on function is_first_house from public;
grant execute on function is_first_house to arbe_app;

-- note_deleted_house records that the current agent deletes the current house.
create function note_deleted_house() returns void
  language plpgsql security definer set search_path = public, pg_temp as $$
begin
  insert into deleted_houses (id, name, deleted_by, deleted_by_name, belonged_to)
  select h.id, h.name, a.id, coalesce(a.name, ''), h.belongs_to
    from houses h join agents a on a.id = current_agent() where h.id = current_house()
  on conflict do nothing;
end $$;
revoke execute on function note_deleted_house from public;
grant execute on function note_deleted_house to arbe_app;

-- forget_house deletes the current house with all that it owns, if somebody has deleted it.
create function forget_house() returns void
  language plpgsql security definer set search_path = public, pg_temp as $$
declare
  today constant date := (now() at time zone 'utc')::date;
begin
  update deleted_houses d set emptied_at = now(), charged_on = today,
      charged_micros = (select coalesce(sum(s.charged_micros), 0) from spending s where s.house_id = d.id and s.day = today)
    where d.id = current_house() and d.emptied_at is null;
  if found then
    delete from houses where id = current_house();
  end if;
end $$;
revoke execute on function forget_house from public;
grant execute on function forget_house to arbe_app;

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
    union all
    select d.id, d.charged_micros, 0 from public.deleted_houses d where d.charged_on = (now() at time zone 'utc')::date
  )
  select coalesce(sum(u.micros), 0)::bigint,
    coalesce(sum(u.micros) filter (where u.house_id = public.current_house()
      or coalesce(d.belonged_to, h.belongs_to) = (select own.belongs_to from public.houses own where own.id = public.current_house())), 0)::bigint,
    coalesce(sum(u.reserved), 0)::bigint
  from used u left join public.houses h on h.id = u.house_id left join public.deleted_houses d on d.id = u.house_id;
end $$;

-- A thread may use another model, and let it think harder, than its bots do elsewhere.
drop view thread_heads;
alter table threads
  add column model text not null default '' check (length(model) <= 300),
  add column think text not null default '' check (think in ('', 'off', 'low', 'medium', 'high'));
comment on column threads.model is 'The model of the bots that work in the thread, as provider/model; empty if each uses its own.';
comment on column threads.think is 'How hard that model thinks; empty for the setting of each bot.';
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

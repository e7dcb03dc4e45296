-- What models cost: each call of a turn or of a run, their sums, and the limits that these are compared with.

create table model_calls (
  house_id       text not null references houses (id) on delete cascade,
  thread_id      text not null,
  turn_id        text not null,
  id             text not null,
  agent_id       uuid not null,
  model          text not null,
  input          bigint not null,
  output         bigint not null,
  cache_read     bigint not null,
  cache_write    bigint not null,
  cost_micros    bigint not null check (cost_micros >= 0),
  cost_known     boolean not null,
  estimated      boolean not null,
  made_at        timestamptz not null default now(),
  charged_micros bigint not null default 0 check (charged_micros >= 0),
  primary key (turn_id, id)
);
comment on table model_calls is 'What each call of a model used. It outlives the thread, because the house''s limits count it.';
comment on column model_calls.id is 'The call within its turn.';
comment on column model_calls.cost_known is 'Whether the model''s price is known. Otherwise cost_micros is 0.';
comment on column model_calls.estimated is 'Whether a part of the tokens is an estimate, because the provider did not report them.';
comment on column model_calls.charged_micros is 'What it counts against the money of the installation: 0 if the house used a key of its own; by a stated price if the price is unknown.';
create index model_calls_by_house on model_calls (house_id, made_at) include (thread_id, cost_micros);
alter table model_calls enable row level security;
create policy tenant on model_calls to arbe_app using (house_id = current_house());
grant select, insert on model_calls to arbe_app;

-- Coding agents call models through the gateway. What that costs counts in the same limits as what turns cost.
create table run_calls (
  id              bigint generated always as identity primary key,
  house_id        text not null references houses (id) on delete cascade,
  thread_id       text not null,
  epoch           bigint not null,
  agent_id        uuid not null,
  root            text not null,
  model           text not null,
  began_at        timestamptz not null default now(),
  lapses_at       timestamptz not null,
  reserved_micros bigint not null check (reserved_micros >= 0),
  ended_at        timestamptz,
  outcome         text not null default '' check (outcome in ('', 'ok', 'refused', 'broken', 'left')),
  status          int not null default 0,
  stop            text not null default '',
  input           bigint not null default 0,
  output          bigint not null default 0,
  cache_read      bigint not null default 0,
  cache_write     bigint not null default 0,
  cost_micros     bigint not null default 0 check (cost_micros >= 0),
  cost_known      boolean not null default true,
  estimated       boolean not null default false,
  charged_micros  bigint not null default 0 check (charged_micros >= 0)
);
comment on table run_calls is 'Each call of a model that a run of a coding agent made through the gateway. It outlives the thread, as model_calls does.';
comment on column run_calls.epoch is 'Which run of the thread it was.';
comment on column run_calls.root is 'The entry of a person from which the run follows, as turns have it.';
comment on column run_calls.lapses_at is 'When the call counts as over if no server says so, because that one died.';
comment on column run_calls.reserved_micros is 'What it may cost of the installation''s money while it is in progress.';
comment on column run_calls.outcome is 'ok; refused by the provider; broken off by it; left by the agent; empty while it is in progress.';
comment on column run_calls.status is 'The HTTP status of the provider; 0 if it did not answer.';
comment on column run_calls.stop is 'Why the answer ended, in pi''s words; empty if it did not, or is not understood.';
create index on run_calls (house_id, thread_id, epoch, id);
create index on run_calls (house_id, root);
create index on run_calls (lapses_at) include (house_id, reserved_micros) where ended_at is null;
alter table run_calls enable row level security;
create policy tenant on run_calls to arbe_app using (house_id = current_house());
grant select, insert, update on run_calls to arbe_app;

-- One row for each thread and day, so that limits cost the same however many calls were made. A row for a whole house would
-- make the turns of its threads wait for each other.
create table spending (
  house_id       text not null references houses (id) on delete cascade,
  day            date not null,
  thread_id      text not null,
  charged_micros bigint not null default 0,
  own_micros     bigint not null default 0,
  cost_unknown   boolean not null default false,
  calls          bigint not null default 0,
  primary key (house_id, day, thread_id)
);
comment on table spending is 'What the models of a thread cost in a day (UTC): the sums of model_calls and run_calls. It outlives the thread, because the house''s limits count it.';
comment on column spending.charged_micros is 'The calls with keys of the installation, also those whose price is not known.';
comment on column spending.own_micros is 'The calls with keys of the house whose price is known.';
create index spending_of_day on spending (day) include (house_id, charged_micros);
alter table spending enable row level security;
create policy tenant on spending to arbe_app using (house_id = current_house());
grant select, insert, update on spending to arbe_app;

-- What the models of the installation cost today: in all houses, and in those of the person to whom the transaction's house
-- belongs. Calls in progress count as what they reserved, which reserved says again for all of them.
create function charged_today() returns table (installation bigint, person bigint, reserved bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
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
  from used u join public.houses h on h.id = u.house_id
$$;

-- money_lacks returns the limit that leaves no room for a call that may cost so much: 'installation' or 'person'; '' if
-- there is room. What the call may cost has to fit also if no other call is in progress; otherwise each turn that is
-- alone could exceed the limits by a whole call. One transaction at a time decides, so calls that begin at the same time
-- cannot all use the same money.
create function money_lacks(p_micros bigint, p_installation bigint, p_person bigint) returns text
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  used record;
begin
  perform pg_advisory_xact_lock(hashtext('arbe.money'));
  select * into used from charged_today();
  if used.installation >= p_installation or p_micros > p_installation - used.installation then
    return 'installation';
  elsif used.person >= p_person or p_micros > p_person - used.person then
    return 'person';
  end if;
  return '';
end $$;

-- reserve_call reserves what a call of a model may cost for a turn of the transaction's house, or returns the limit that
-- leaves no room for it, as money_lacks does.
create function reserve_call(p_turn text, p_micros bigint, p_installation bigint, p_person bigint) returns text
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  lacks text;
begin
  perform pg_advisory_xact_lock(hashtext('arbe.money'));
  update turns set reserved_micros = 0 where id = p_turn and house_id = current_house() and reserved_micros > 0;
  lacks := money_lacks(p_micros, p_installation, p_person);
  if lacks = '' then
    update turns set reserved_micros = p_micros where id = p_turn and house_id = current_house() and ended_at is null;
  end if;
  return lacks;
end $$;

revoke execute on function charged_today, money_lacks, reserve_call from public;
grant execute on function charged_today, money_lacks, reserve_call to arbe_app;

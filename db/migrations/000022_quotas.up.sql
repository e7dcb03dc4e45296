-- Quotas: to whom a house belongs, what an entry of a person led to, and what the models of the installation cost in a day.

alter table houses add column belongs_to uuid references agents (id) on delete set null;
comment on column houses.belongs_to is 'The person whose quotas the house uses: of its owners who are people, the one who joined first; null if it has none.';
create index houses_by_person on houses (belongs_to);

-- house_belongs keeps houses.belongs_to. It runs when the transaction commits, as raise_roster does, so that the house is
-- locked last.
create function house_belongs() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
declare
  changed constant text := case when tg_op = 'DELETE' then old.house_id else new.house_id end;
  person constant uuid := (
    select m.agent_id from members m join agents a on a.id = m.agent_id
    where m.house_id = changed and m.role = 'owner' and a.kind = 'human' order by m.joined_at, m.agent_id limit 1);
begin
  update houses set belongs_to = person where id = changed and belongs_to is distinct from person;
  return null;
end $$;
create constraint trigger house_belongs after insert or update or delete on members
  deferrable initially deferred for each row execute function house_belongs();

update houses h set belongs_to = (
  select m.agent_id from members m join agents a on a.id = m.agent_id
  where m.house_id = h.id and m.role = 'owner' and a.kind = 'human' order by m.joined_at, m.agent_id limit 1);

-- The queue takes the jobs of all houses fairly by person. A house without a person counts as one of its own.
create function persons_of(p_houses text[]) returns table (house text, person text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select h.id, coalesce(h.belongs_to::text, h.id) from public.houses h where h.id = any (p_houses)
$$;

-- The houses that belong to the same person as a house, itself included.
create function houses_beside(p_house text) returns setof text
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select h.id from public.houses h where h.id = p_house or h.belongs_to = (select own.belongs_to from public.houses own where own.id = p_house)
$$;

alter table turns
  add column root text not null default '',
  add column reserved_micros bigint not null default 0 check (reserved_micros >= 0);
comment on column turns.root is 'The entry of a person from which the turn follows, however many bots were in between: thread/entry, or retry/id if a person had an answer tried again.';
comment on column turns.reserved_micros is 'What the call of a model that may be in progress counts against the money of the installation until it is known what it cost.';
create index turns_by_root on turns (house_id, root);
create index turns_waiting on turns (house_id, thread_id) where status in ('queued', 'delayed');
create index turns_reserved on turns (house_id) where ended_at is null and reserved_micros > 0;

alter table threads add column root text;
comment on column threads.root is 'If a bot created it in a turn, the root of that turn.';
create index threads_by_root on threads (house_id, root) where root is not null;

-- How many turns wait to begin: in a thread, in its house, and in all houses of the person to whom the house belongs. It
-- counts no further than p_most.
create function waiting_turns(p_house text, p_thread text, p_most int) returns table (of_thread int, of_house int, of_person int)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select
    (select count(*)::int from (select from public.turns where house_id = p_house and thread_id = p_thread and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (select from public.turns where house_id = p_house and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (
      select from public.houses h join public.turns t on t.house_id = h.id and t.status in ('queued', 'delayed')
      where h.id = p_house or h.belongs_to = (select own.belongs_to from public.houses own where own.id = p_house) limit p_most) t)
$$;

alter table model_calls
  add column charged_micros bigint not null default 0 check (charged_micros >= 0);
comment on column model_calls.charged_micros is 'What it counts against the money of the installation: 0 if the house used a key of its own; by a stated price if the price is unknown.';

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
comment on table spending is 'What the models of a thread cost in a day (UTC): the sums of model_calls. It outlives the thread, because the house''s limits count it.';
comment on column spending.charged_micros is 'The calls with keys of the installation, also those whose price is not known.';
comment on column spending.own_micros is 'The calls with keys of the house whose price is known.';
create index spending_of_day on spending (day) include (house_id, charged_micros);
-- What was spent before today bounds nothing any more. Whose key it was is not known.
insert into spending (house_id, day, thread_id, charged_micros, cost_unknown, calls)
  select house_id, (now() at time zone 'utc')::date, thread_id, sum(cost_micros), bool_or(not cost_known), count(*) from model_calls
  where made_at >= date_trunc('day', now() at time zone 'utc') at time zone 'utc' group by house_id, thread_id;

-- What the models of the installation cost today: in all houses, and in those of the person to whom the transaction's house
-- belongs. Calls in progress count as what they reserved, which reserved says again for all of them.
create function charged_today() returns table (installation bigint, person bigint, reserved bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with used as (
    select s.house_id, s.charged_micros as micros, 0::bigint as reserved from public.spending s where s.day = (now() at time zone 'utc')::date
    union all
    select t.house_id, t.reserved_micros, t.reserved_micros from public.turns t where t.ended_at is null and t.reserved_micros > 0
  )
  select coalesce(sum(u.micros), 0)::bigint,
    coalesce(sum(u.micros) filter (where h.id = public.current_house()
      or h.belongs_to = (select own.belongs_to from public.houses own where own.id = public.current_house())), 0)::bigint,
    coalesce(sum(u.reserved), 0)::bigint
  from used u join public.houses h on h.id = u.house_id
$$;

-- reserve_call reserves what a call of a model may cost for a turn of the transaction's house, or returns the limit that
-- leaves no room for it: 'installation' or 'person'; otherwise ''. One transaction at a time decides, so calls that begin
-- at the same time cannot all use the same money. While no other call is in progress, one may begin as long as anything
-- is left.
create function reserve_call(p_turn text, p_micros bigint, p_installation bigint, p_person bigint) returns text
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  used record;
begin
  perform pg_advisory_xact_lock(hashtext('arbe.money'));
  update turns set reserved_micros = 0 where id = p_turn and house_id = current_house() and reserved_micros > 0;
  select * into used from charged_today();
  if used.installation >= p_installation or used.reserved > 0 and used.installation + p_micros > p_installation then
    return 'installation';
  elsif used.person >= p_person or used.reserved > 0 and used.person + p_micros > p_person then
    return 'person';
  end if;
  update turns set reserved_micros = p_micros where id = p_turn and house_id = current_house() and ended_at is null;
  return '';
end $$;

-- Who may create a house depends on houses that the transaction does not see: how many belong to an agent, whether they are in
-- one, whether they own the first one, and whether there is one at all.
create function house_standing(p_agent uuid) returns table (owned int, member boolean, operator boolean, any_house boolean)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select
    (select count(*)::int from public.houses h where h.belongs_to = p_agent),
    exists (select from public.members m where m.agent_id = p_agent),
    exists (select from public.members m where m.agent_id = p_agent and m.role = 'owner'
      and m.house_id = (select h.id from public.houses h order by h.created_at, h.id limit 1)),
    exists (select from public.houses)
$$;
create index on houses (created_at, id);

revoke execute on function house_belongs, persons_of, houses_beside, waiting_turns, charged_today, reserve_call, house_standing from public;
grant execute on function persons_of, houses_beside, waiting_turns, charged_today, reserve_call, house_standing to arbe_app;

alter table spending enable row level security;
create policy tenant on spending to arbe_app using (house_id = current_house());
grant select, insert, update on spending to arbe_app;

-- Bots, and what wakes them. Every bot that arbe created has a row in bots; its name and runtime are in agents.

create table bots (
  house_id     text not null,
  agent_id     uuid not null,
  handle       text not null check (handle ~ '^[a-z0-9]([a-z0-9-]{0,37}[a-z0-9])?$'),
  looks        text not null generated always as (replace(replace(translate(handle, '01-', 'ol'), 'rn', 'm'), 'vv', 'w')) stored,
  instructions text not null default '' check (octet_length(instructions) <= 65536),
  model        text not null default '',
  tools        text[] not null,
  limits       jsonb not null default '{}',
  created_at   timestamptz not null default now(),
  updated_at   timestamptz not null default now(),
  ask          text[] not null default '{}',
  think        text not null default '' check (think in ('', 'off', 'low', 'medium', 'high')),
  primary key (house_id, agent_id),
  unique (house_id, looks),
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on table bots is 'The bots of a house.';
comment on column bots.handle is 'How people mention it: @handle.';
comment on column bots.looks is 'The handle in a form that is equal for handles that look alike, such as arbe and ar-be, or b0b and bob.';
comment on column bots.model is 'provider/model; empty for the default model of the house.';
comment on column bots.tools is 'The names of the tools that it may use.';
comment on column bots.limits is 'What one turn, and a thread in a day, may use. A missing limit has its default.';
comment on column bots.ask is 'The names of the tools that it uses only with a person''s yes, besides those of the house.';
comment on column bots.think is 'How hard its model thinks; empty for what the provider does.';
create trigger bots_set_updated_at before update on bots for each row execute function set_updated_at();
create trigger notify_change after insert or update or delete on bots
  for each row execute function notify_change('bot', 'house_id', 'agent_id');

alter table bots enable row level security;
create policy tenant on bots to arbe_app using (house_id = current_house());
grant select, delete, insert (house_id, agent_id, handle, instructions, model, tools, limits, ask, think),
  update (handle, instructions, model, tools, limits, ask, think) on bots to arbe_app;

-- A house names its own bots, and nobody else.
create policy renamed on agents for update to arbe_app using (
  exists (select from bots b where b.house_id = current_house() and b.agent_id = agents.id));
grant update (name) on agents to arbe_app;

create table activation_policies (
  id           text primary key default generate_short_id(),
  house_id     text not null,
  agent_id     uuid not null,
  name         text not null,
  trigger      text not null,
  config       jsonb not null default '{}',
  resource_ids text[] not null default '{}',
  tool_ids     text[] not null default '{}',
  enabled      boolean not null default true,
  created_at   timestamptz not null default clock_timestamp(),
  updated_at   timestamptz not null default now(),
  foreign key (house_id, agent_id) references bots (house_id, agent_id) on delete cascade
);
comment on table activation_policies is 'What wakes a bot (seed 004). The set of triggers is open: a server ignores those that it does not know.';
comment on column activation_policies.config is 'What the trigger needs, such as {"scope_ids": […]} to limit it to some threads.';
create index on activation_policies (house_id, agent_id);
create trigger activation_policies_set_updated_at before update on activation_policies for each row execute function set_updated_at();
create trigger notify_change after insert or update or delete on activation_policies
  for each row execute function notify_change('bot', 'house_id', 'agent_id');

alter table activation_policies enable row level security;
create policy tenant on activation_policies to arbe_app using (house_id = current_house());
grant select, delete, insert, update (name, trigger, config, resource_ids, tool_ids, enabled) on activation_policies to arbe_app;

-- raise_roster raises houses.roster. It runs when the transaction commits, so that the house is locked last, as
-- house_belongs does. Who can be mentioned is a part of the roster, so members raise it too.
create function raise_roster() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
declare
  changed jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
begin
  update houses set roster = roster + 1 where id = changed ->> 'house_id';
  return null;
end $$;
create constraint trigger raise_roster after insert or update or delete on bots
  deferrable initially deferred for each row execute function raise_roster();
create constraint trigger raise_roster after insert or update or delete on activation_policies
  deferrable initially deferred for each row execute function raise_roster();
create constraint trigger raise_roster after insert or delete on members
  deferrable initially deferred for each row execute function raise_roster();

-- agent_renamed tells the servers and the rosters of all houses of an agent that its name has changed, because
-- notify_change and raise_roster need a row that names a house.
create function agent_renamed() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform pg_notify('arbe_change', house_id || ':member:' || agent_id) from members where agent_id = new.id;
  update houses set roster = roster + 1 where id in (select house_id from members where agent_id = new.id);
  return null;
end $$;
create constraint trigger agent_renamed after update on agents
  deferrable initially deferred for each row when (old.name is distinct from new.name) execute function agent_renamed();

revoke execute on function raise_roster, agent_renamed from public;

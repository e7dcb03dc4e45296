-- Houses and their members. The schema enforces the invariants (seed 000), so that callers cannot break them: composite
-- same-house keys, CHECKs, and row-level security for everything that belongs to a house.
--
-- Postgres looks up a name in a function's body when the function runs, along the caller's search_path, where a type of
-- that name in a temporary schema comes first. So every function sets its own path, or was bound to its objects when it
-- was created (return …, begin atomic). This includes trigger functions, because a cascade fires them as the owner. What
-- the server's role may call is granted to it alone. A test in db checks each function.

-- The role of the servers in this database. Their login role is a member of arbe_app and owns nothing.
do $$ begin
  create role arbe_app nologin;
exception when duplicate_object or unique_violation then null; -- all databases of a cluster share it
end $$;
grant usage on schema public to arbe_app;

-- The house and the agent of a transaction's scope; null if it has none.
create function current_house() returns text language sql stable
  return nullif(current_setting('app.house_id', true), '');
create function current_agent() returns uuid language sql stable
  return nullif(current_setting('app.agent_id', true), '')::uuid;

-- A short id: 12 characters of Crockford's base 32, 60 random bits.
create function generate_short_id() returns text language plpgsql volatile
  set search_path = public, pg_temp as $$
declare
  alphabet constant text := '0123456789abcdefghjkmnpqrstvwxyz';
  random   constant bytea := uuid_send(gen_random_uuid());
  id text := '';
  i int;
begin
  -- Skip bytes 6 to 8 of the uuid, which hold its version and variant.
  foreach i in array array[0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14] loop
    id := id || substr(alphabet, (get_byte(random, i) & 31) + 1, 1);
  end loop;
  return id;
end $$;

revoke execute on function current_house, current_agent, generate_short_id from public;
grant execute on function current_house, current_agent, generate_short_id to arbe_app;

create function set_updated_at() returns trigger language plpgsql
  set search_path = public, pg_temp as $$
begin
  new.updated_at := now();
  return new;
end $$;

-- notify_change notifies servers of a changed row: "house:kind:id". Its arguments are the kind, and the columns of the
-- house and the id. Postgres sends equal notifications once per transaction.
create function notify_change() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
declare
  changed jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
begin
  perform pg_notify('arbe_change', (changed ->> tg_argv[1]) || ':' || tg_argv[0] || ':' || (changed ->> tg_argv[2]));
  return null;
end $$;

revoke execute on function set_updated_at, notify_change from public;

create table agents (
  id         uuid primary key default gen_random_uuid(),
  kind       text not null check (kind in ('human', 'bot')),
  runtime    text,
  name       text,
  created_at timestamptz not null default now(),
  check (kind = 'bot' or runtime is null),
  check (kind <> 'bot' or runtime is not null)
);
comment on table agents is 'Any actor, human or bot. Global: membership ties it to houses.';
comment on column agents.runtime is 'Who does the work of a bot: arbe, whose turns run in the server, or a coding agent that runs in a sandbox: pi, codex, claude-code. Null for people.';

create table houses (
  id                     text primary key default generate_short_id(),
  name                   text not null,
  default_environment_id text, -- references environments, which references houses
  primary_thread_id      text, -- references threads, likewise
  created_at             timestamptz not null default now(),
  default_model          text not null default '' check (length(default_model) <= 300),
  limits                 jsonb not null default '{}',
  roster                 bigint not null default 0,
  belongs_to             uuid references agents (id) on delete set null,
  fallback_models        text[] not null default '{}' check (cardinality(fallback_models) <= 5),
  ask                    text[] not null default '{}'
);
comment on table houses is 'A tenant. It owns everything in it and is the only privacy boundary between people.';
comment on column houses.default_environment_id is 'The environment of threads that name none. If it is null, their first command fails with an error that says so.';
comment on column houses.primary_thread_id is 'The thread for signal.house.* entries.';
comment on column houses.default_model is 'The model of bots that name none, as provider/model; empty for the default of the installation.';
comment on column houses.limits is 'What all bots of the house together may use: {house_usd_day}. A missing limit has its default.';
comment on column houses.roster is 'Raised with each change of what decides which bots answer: their rows, names and policies. A server that remembers the bots of a house compares this number to know that it is current.';
comment on column houses.belongs_to is 'The person whose quotas the house uses: of its owners who are people, the one who joined first; null if it has none.';
comment on column houses.fallback_models is 'The models that its bots ask, in this order, while the provider of their own does not answer, as provider/model.';
comment on column houses.ask is 'The names of the tools that every bot of the house uses only with a person''s yes.';
create index houses_by_person on houses (belongs_to);
-- Without these two, the question whether a thread is the primary one of its house, and the one for the oldest house,
-- would read all houses.
create index houses_by_primary_thread on houses (primary_thread_id);
create index houses_by_age on houses (created_at, id);
create trigger notify_change after insert or update or delete on houses
  for each row execute function notify_change('house', 'id', 'id');

create table members (
  house_id  text not null references houses (id) on delete cascade,
  agent_id  uuid not null references agents (id) on delete cascade,
  role      text not null check (role in ('owner', 'member')),
  joined_at timestamptz not null default now(),
  read_from timestamptz not null default now(),
  primary key (house_id, agent_id)
);
comment on table members is 'The agents of a house and their roles.';
comment on column members.read_from is 'When they joined: what was said before counts as read.';
create index on members (agent_id);
create trigger notify_change after insert or update or delete on members
  for each row execute function notify_change('member', 'house_id', 'agent_id');

-- Row-level security: a transaction sees only the house of its scope. A transaction without a scope sees nothing. People
-- list the houses they are in before they choose one.
alter table members enable row level security;
create policy tenant on members to arbe_app
  using (house_id = current_house()) with check (house_id = current_house());
create policy own on members for select to arbe_app using (agent_id = current_agent());
grant select, insert, update, delete on members to arbe_app;

alter table houses enable row level security;
create policy tenant on houses to arbe_app
  using (id = current_house()) with check (id = current_house());
create policy own on houses for select to arbe_app using (
  exists (select from members m where m.house_id = houses.id and m.agent_id = current_agent()));
grant select, insert, update, delete on houses to arbe_app;

-- Agents are global: a transaction sees its own agent and the members of its house, and may add agents.
alter table agents enable row level security;
create policy visible on agents for select to arbe_app using (
  id = current_agent() or
  exists (select from members m where m.agent_id = agents.id and m.house_id = current_house()));
create policy add on agents for insert to arbe_app with check (true);
grant select, insert on agents to arbe_app;

-- bot_asks returns whether the transaction acts for a bot. Bots see neither the secrets of their house nor what seals
-- them, because what a bot reads it may be talked into saying. What a bot needs, the server does for it, in a transaction
-- without an agent.
create function bot_asks() returns boolean language sql stable
  return exists (select from public.agents a where a.id = public.current_agent() and a.kind = 'bot');
revoke execute on function bot_asks from public;
grant execute on function bot_asks to arbe_app;

-- house_belongs keeps houses.belongs_to. It runs when the transaction commits, so that the house is locked last, whatever
-- else the transaction locks: transactions that change members and write to logs in different orders cannot deadlock.
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
revoke execute on function house_belongs from public;

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

revoke execute on function persons_of, houses_beside, house_standing from public;
grant execute on function persons_of, houses_beside, house_standing to arbe_app;

-- The database's identity, which a dump and a restore keep. Data directories record it and refuse another database.
create table installation (
  one boolean primary key default true check (one),
  id  text not null default replace(gen_random_uuid()::text, '-', '')
);
comment on table installation is 'One row: the identity of this database. Only the owner reads it.';
insert into installation default values;
alter table installation enable row level security;

-- What the owner stores about this installation, sealed. The server's role cannot read it.
create table sealed_settings (
  name   text primary key,
  sealed bytea not null
);
comment on table sealed_settings is 'Values under the installation''s key, such as the password of the server''s own role.';

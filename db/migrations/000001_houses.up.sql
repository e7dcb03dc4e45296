-- Houses and what is in them: agents, members, environments, secrets, sandboxes, threads (seed 000). The schema
-- enforces the invariants, so that callers cannot break them: composite same-house keys, CHECKs, the exclusive parent
-- arc.
--
-- Postgres looks up a name in a function's body when the function runs, along the caller's search_path, where a type of
-- that name in a temporary schema comes first. So every function sets its own path, or was bound to its objects when it
-- was created (begin atomic), or is proven to name nothing that can be shadowed. A test in db checks each function.
-- This includes trigger functions, because a cascade fires them as the owner. What the server's role may call is
-- granted to it alone.

-- The role of the servers in this database. Their login role is a member of arbe_app and owns nothing.
do $$ begin
  create role arbe_app nologin;
exception when duplicate_object or unique_violation then null; -- all databases of a cluster share it
end $$;

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

create table houses (
  id                     text primary key default generate_short_id(),
  name                   text not null,
  default_environment_id text,
  primary_thread_id      text,
  created_at             timestamptz not null default now()
);
comment on table houses is 'A tenant. It owns everything in it and is the only privacy boundary between people.';
comment on column houses.default_environment_id is 'The environment of threads that name none. If it is null, their first command fails with an error that says so.';
comment on column houses.primary_thread_id is 'The thread for signal.house.* entries.';

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

create table members (
  house_id  text not null references houses (id) on delete cascade,
  agent_id  uuid not null references agents (id) on delete cascade,
  role      text not null check (role in ('owner', 'member')),
  joined_at timestamptz not null default now(),
  primary key (house_id, agent_id)
);
comment on table members is 'The agents of a house and their roles.';

create table environments (
  id              text primary key default generate_short_id(),
  house_id        text not null references houses (id) on delete cascade,
  name            text not null,
  config          jsonb not null default '{}',
  secret_bindings jsonb not null default '[]',
  created_at      timestamptz not null default now(),
  unique (house_id, id)
);
comment on table environments is 'Recipes of sandboxes: driver, image, repository, setup script, limits.';
comment on column environments.secret_bindings is '[{name, required}]: house secrets to inject, by name; resolved when a sandbox is created.';

create table secrets (
  id              text primary key default generate_short_id(),
  house_id        text not null references houses (id) on delete cascade,
  name            text not null,
  vault_secret_id uuid not null,
  created_at      timestamptz not null default now(),
  unique (house_id, name)
);
comment on table secrets is 'Named values of a house. The row holds an opaque reference to the sealed value, never the value.';

create table sandboxes (
  id             text primary key default generate_short_id(),
  house_id       text not null references houses (id) on delete cascade,
  environment_id text not null,
  provider       text not null,
  provider_ref   text,
  status         text not null default 'pending' check (status in ('pending', 'live', 'dead')),
  ephemeral      boolean not null default false,
  machine_id     text,
  created_at     timestamptz not null default now(),
  destroyed_at   timestamptz,
  unique (house_id, id),
  foreign key (house_id, environment_id) references environments (house_id, id)
);
comment on table sandboxes is 'Handles of machines. Threads point at them, never the reverse.';
comment on column sandboxes.machine_id is 'The machine that it is on; null if every server reaches it, or while it is being created.';
comment on column sandboxes.ephemeral is 'Whether the machine is deleted once no running thread is on it.';

-- Sandboxes of some drivers are on one machine, and only that machine's servers reach them.
create table machines (
  id      text primary key,
  seen_at timestamptz not null default now()
);
comment on table machines is 'The machines on which servers create sandboxes. They belong to no house.';
comment on column machines.id is 'The identity of a directory of sandboxes, which a restart keeps.';
comment on column machines.seen_at is 'When a server of the machine last reported.';

create table threads (
  id               text primary key default generate_short_id(),
  house_id         text not null references houses (id) on delete cascade,
  stream_id        text not null unique,
  name             text,
  pinned_at        timestamptz,
  parent_thread_id text,
  parent_agent_id  uuid references agents (id) on delete cascade,
  environment_id   text,
  sandbox_id       text,
  agent_id         uuid,
  tags             text[] not null default '{}',
  forked_from_id   text,
  forked_at_seq    bigint check (forked_at_seq >= 0),
  token_epoch      bigint not null generated always as identity,
  status           text not null default 'open' check (
    (agent_id is null and status in ('open', 'closed')) or
    (agent_id is not null and status in ('idle', 'running', 'completed', 'failed', 'cancelled'))
  ),
  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),
  active_at        timestamptz not null default now(),
  unique (house_id, id),
  check (num_nonnulls(parent_thread_id, parent_agent_id) <= 1),
  check (forked_from_id is null or forked_at_seq is not null),
  foreign key (house_id, agent_id) references members (house_id, agent_id),
  foreign key (house_id, environment_id) references environments (house_id, id),
  foreign key (house_id, sandbox_id) references sandboxes (house_id, id) on delete set null (sandbox_id),
  foreign key (house_id, parent_thread_id) references threads (house_id, id) on delete cascade,
  foreign key (house_id, forked_from_id) references threads (house_id, id) on delete set null (forked_from_id)
);
comment on table threads is 'A conversation. This row describes it; its stream records what happened.';
comment on column threads.agent_id is 'The bot that drives it; null for a chat. It determines which values status may have.';
comment on column threads.parent_agent_id is 'The agent it is a direct message to; an addressee, not a driver.';
comment on column threads.forked_from_id is 'The thread that it was forked from; null if it is not a fork, or after the source was deleted.';
comment on column threads.forked_at_seq is 'The last entry that it shares with that thread; null if it is not a fork.';
comment on column threads.active_at is 'When its last entry was written, at most about a second late; its creation if it has none. Lists are ordered by it. touch_threads updates it after the append: an append that also updated the thread would wait for the row''s lock and pay for its indexes.';
comment on column threads.token_epoch is 'Only tokens that name this number are valid. It changes to end all tokens. It cannot be set back, and a thread that is created again under an old id gets another number.';

-- A house's two pointers into itself. They are deferred, because the house is inserted before, and deleted after, what
-- they point to.
alter table houses
  add foreign key (id, default_environment_id) references environments (house_id, id)
    deferrable initially deferred,
  add foreign key (id, primary_thread_id) references threads (house_id, id)
    on delete set null (primary_thread_id) deferrable initially deferred;

create index threads_order on threads (house_id, coalesce(pinned_at, '-infinity'::timestamptz), active_at, id);
create index on threads (parent_thread_id);
create index on threads (sandbox_id);
create index on threads (forked_from_id) where forked_from_id is not null;
create index on threads (house_id) where pinned_at is not null;
create index on members (agent_id);
create index on environments using gin (secret_bindings);
create index on threads using gin (tags);
create index on environments (house_id);
create index on secrets (house_id);
create index on sandboxes (house_id);
create index on threads (house_id);

create function set_updated_at() returns trigger language plpgsql
  set search_path = public, pg_temp as $$
begin
  new.updated_at := now();
  return new;
end $$;
-- Activity does not count as a change of the thread.
create trigger threads_set_updated_at before update on threads
  for each row when (old.active_at is not distinct from new.active_at) execute function set_updated_at();

-- Row-level security: a transaction sees only the house of its scope. A transaction without a scope sees nothing.
alter table houses enable row level security;
alter table agents enable row level security;
alter table members enable row level security;
alter table environments enable row level security;
alter table secrets enable row level security;
alter table sandboxes enable row level security;
alter table threads enable row level security;
alter table machines enable row level security;

create policy tenant on environments to arbe_app using (house_id = current_house());
create policy tenant on secrets to arbe_app using (house_id = current_house());
create policy tenant on sandboxes to arbe_app using (house_id = current_house());
create policy tenant on threads to arbe_app using (house_id = current_house());

-- People list the houses they are in before they choose one.
create policy tenant on members to arbe_app
  using (house_id = current_house()) with check (house_id = current_house());
create policy own on members for select to arbe_app using (agent_id = current_agent());
create policy tenant on houses to arbe_app
  using (id = current_house()) with check (id = current_house());
create policy own on houses for select to arbe_app using (
  exists (select from members m where m.house_id = houses.id and m.agent_id = current_agent()));

create policy anybody on machines for select to arbe_app using (true);
create policy installation on machines to arbe_app using (current_house() is null);

-- Agents are global: a transaction sees its own agent and the members of its house, and may add agents.
create policy visible on agents for select to arbe_app using (
  id = current_agent() or
  exists (select from members m where m.agent_id = agents.id and m.house_id = current_house()));
create policy add on agents for insert to arbe_app with check (true);

revoke execute on function current_house, current_agent, generate_short_id, set_updated_at from public;
grant usage on schema public to arbe_app;
grant execute on function current_house, current_agent, generate_short_id to arbe_app;
grant select, insert, update, delete on houses, members, environments, secrets, sandboxes, threads to arbe_app;
grant select, insert on agents to arbe_app;
grant select, insert, update on machines to arbe_app;

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

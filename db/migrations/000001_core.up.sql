-- The control plane: houses, agents, members, environments, secrets, sandboxes, threads (seed 000).
-- Invariants live here, not in callers: composite same-house keys, CHECKs, the exclusive parent arc.

-- Who the server is in this database. Its login role is a member of arbe_app and owns nothing.
do $$ begin
  create role arbe_app nologin;
exception when duplicate_object or unique_violation then null; -- shared by all databases of a cluster
end $$;

-- The house and the agent that a transaction looks with; null when it has not said.
create function current_house() returns text language sql stable
  return nullif(current_setting('app.house_id', true), '');
create function current_agent() returns uuid language sql stable
  return nullif(current_setting('app.agent_id', true), '')::uuid;

-- A short id: 12 characters of Crockford's base 32, 60 random bits.
create function generate_short_id() returns text language plpgsql volatile as $$
declare
  alphabet constant text := '0123456789abcdefghjkmnpqrstvwxyz';
  random   constant bytea := uuid_send(gen_random_uuid());
  id text := '';
  i int;
begin
  -- Bytes 6 to 8 of a uuid hold its version and variant: leave them out.
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
comment on table houses is 'A tenant: owns everything in it, the only privacy boundary between people.';
comment on column houses.default_environment_id is 'The recipe of threads that name none; null: their first command fails, saying so.';
comment on column houses.primary_thread_id is 'Where signal.house.* entries go.';

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
comment on table members is 'Which agents are in a house, and as what.';

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
comment on column environments.secret_bindings is '[{name, required}]: house secrets to inject, by name; resolved when a sandbox is made.';

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
  created_at     timestamptz not null default now(),
  destroyed_at   timestamptz,
  unique (house_id, id),
  foreign key (house_id, environment_id) references environments (house_id, id)
);
comment on table sandboxes is 'Handles of machines. Threads point at them, never the reverse.';
comment on column sandboxes.ephemeral is 'Whether the machine is deleted once no running thread is on it.';

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
  status           text not null default 'open' check (
    (agent_id is null and status in ('open', 'closed')) or
    (agent_id is not null and status in ('idle', 'running', 'completed', 'failed', 'cancelled'))
  ),
  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),
  unique (house_id, id),
  check (num_nonnulls(parent_thread_id, parent_agent_id) <= 1),
  foreign key (house_id, agent_id) references members (house_id, agent_id),
  foreign key (house_id, environment_id) references environments (house_id, id),
  foreign key (house_id, sandbox_id) references sandboxes (house_id, id) on delete set null (sandbox_id),
  foreign key (house_id, parent_thread_id) references threads (house_id, id) on delete cascade
);
comment on table threads is 'A conversation: this row says what it is, its stream says what happened.';
comment on column threads.agent_id is 'The bot that drives it; null: a chat. Picks the vocabulary of status.';
comment on column threads.parent_agent_id is 'The agent it is a direct message to; an addressee, not a driver.';

-- A house's two pointers into itself. Deferred, since the house is there before what they name, and goes
-- before it.
alter table houses
  add foreign key (id, default_environment_id) references environments (house_id, id)
    deferrable initially deferred,
  add foreign key (id, primary_thread_id) references threads (house_id, id)
    on delete set null (primary_thread_id) deferrable initially deferred;

create index on threads (parent_thread_id);
create index on threads (sandbox_id);
create index on threads (house_id) where pinned_at is not null;
create index on members (agent_id);
create index on environments using gin (secret_bindings);
create index on threads using gin (tags);
create index on environments (house_id);
create index on secrets (house_id);
create index on sandboxes (house_id);
create index on threads (house_id);

create function set_updated_at() returns trigger language plpgsql as $$
begin
  new.updated_at := now();
  return new;
end $$;
create trigger threads_set_updated_at before update on threads
  for each row execute function set_updated_at();

-- Row-level security: a transaction sees the house it names, and nothing else. A transaction that
-- names none sees none.
alter table houses enable row level security;
alter table agents enable row level security;
alter table members enable row level security;
alter table environments enable row level security;
alter table secrets enable row level security;
alter table sandboxes enable row level security;
alter table threads enable row level security;

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

-- Agents are global: a transaction sees itself and who is in its house, and may add more.
create policy visible on agents for select to arbe_app using (
  id = current_agent() or
  exists (select from members m where m.agent_id = agents.id and m.house_id = current_house()));
create policy add on agents for insert to arbe_app with check (true);

grant usage on schema public to arbe_app;
grant select, insert, update, delete on houses, members, environments, secrets, sandboxes, threads to arbe_app;
grant select, insert on agents to arbe_app;

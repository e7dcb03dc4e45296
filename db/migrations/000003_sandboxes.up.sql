-- Environments, and the sandboxes that are built from them.

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
create index on environments using gin (secret_bindings);
create index on environments (house_id);
create trigger notify_change after insert or update or delete on environments
  for each row execute function notify_change('environment', 'house_id', 'id');

alter table environments enable row level security;
create policy tenant on environments to arbe_app using (house_id = current_house());
grant select, insert, update, delete on environments to arbe_app;

-- Deferred, because the house is inserted before, and deleted after, its environments.
alter table houses add foreign key (id, default_environment_id) references environments (house_id, id)
  deferrable initially deferred;

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
comment on column sandboxes.ephemeral is 'Whether the machine is deleted once no running thread is on it.';
comment on column sandboxes.machine_id is 'The machine that it is on; null if every server reaches it, or while it is being created.';
create index on sandboxes (house_id);
-- Sandboxes are found by the beginning of their ids, whatever the collation of the database.
create index sandboxes_by_prefix on sandboxes (house_id, id text_pattern_ops);
create trigger notify_change after insert or update or delete on sandboxes
  for each row execute function notify_change('sandbox', 'house_id', 'id');

alter table sandboxes enable row level security;
create policy tenant on sandboxes to arbe_app using (house_id = current_house());
grant select, insert, update, delete on sandboxes to arbe_app;

-- Sandboxes of some drivers are on one machine, and only that machine's servers reach them.
create table machines (
  id      text primary key,
  seen_at timestamptz not null default now()
);
comment on table machines is 'The machines on which servers create sandboxes. They belong to no house.';
comment on column machines.id is 'The identity of a directory of sandboxes, which a restart keeps.';
comment on column machines.seen_at is 'When a server of the machine last reported.';

alter table machines enable row level security;
create policy anybody on machines for select to arbe_app using (true);
create policy installation on machines to arbe_app using (current_house() is null);
grant select, insert, update on machines to arbe_app;

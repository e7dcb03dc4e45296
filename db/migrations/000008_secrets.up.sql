-- The secrets of houses: named values, sealed under the data key of their house (package secret); and the servers with
-- models that houses add. Bots see neither the secrets nor what seals them, see bot_asks.

create table house_keys (
  house_id   text primary key references houses (id) on delete cascade,
  sealed     bytea not null,
  created_at timestamptz not null default now()
);
comment on table house_keys is 'The data key of each house that has secrets, under the root key of the installation.';
comment on column house_keys.created_at is 'When the key was made; a rotation makes a new one.';
alter table house_keys enable row level security;
create policy tenant on house_keys to arbe_app using (house_id = current_house() and not bot_asks());
grant select, insert, update, delete on house_keys to arbe_app;

create table sealed_values (
  id       uuid primary key default gen_random_uuid(),
  house_id text not null references houses (id) on delete cascade,
  sealed   bytea not null check (length(sealed) < 70000),
  unique (house_id, id)
);
comment on table sealed_values is 'Values under the data key of their house, which also binds each to its house and its name.';
create index on sealed_values (house_id);
alter table sealed_values enable row level security;
create policy tenant on sealed_values to arbe_app using (house_id = current_house() and not bot_asks());
grant select, insert, update, delete on sealed_values to arbe_app;

create table secrets (
  id              text primary key default generate_short_id(),
  house_id        text not null references houses (id) on delete cascade,
  name            text not null check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'),
  vault_secret_id uuid not null,
  created_at      timestamptz not null default now(),
  redacted        boolean not null default true,
  set_by          uuid references agents (id) on delete set null,
  set_at          timestamptz not null default now(),
  used_at         timestamptz,
  revision        bigint not null generated always as identity,
  unique (house_id, name),
  foreign key (house_id, vault_secret_id) references sealed_values (house_id, id)
);
comment on table secrets is 'Named values of a house. The row holds an opaque reference to the sealed value, never the value.';
comment on column secrets.vault_secret_id is 'The sealed value (sealed_values).';
comment on column secrets.redacted is 'Whether the value is long enough to be removed from output.';
comment on column secrets.used_at is 'When the server last used it, accurate to a minute; null if never.';
comment on column secrets.revision is 'Changes with every new value.';
create index on secrets (house_id);
create index on secrets (house_id, vault_secret_id);
alter table secrets enable row level security;
create policy tenant on secrets to arbe_app using (house_id = current_house() and not bot_asks());
grant select, insert, update, delete on secrets to arbe_app;

create table model_endpoints (
  house_id    text not null references houses (id) on delete cascade,
  name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
  base_url    text not null check (length(base_url) <= 2000),
  secret_name text not null default '',
  key_made    boolean not null default false,
  created_at  timestamptz not null default now(),
  dialect     text not null default 'chat' check (dialect in ('chat', 'messages', 'responses', 'gemini')),
  primary key (house_id, name)
);
comment on table model_endpoints is 'Servers with models that a house added.';
comment on column model_endpoints.secret_name is 'The secret of the house with their key; empty if they want none.';
comment on column model_endpoints.key_made is 'Whether the secret was made for the server, with which it goes.';
comment on column model_endpoints.dialect is 'The protocol that the server speaks: OpenAI''s chat/completions, Anthropic''s messages, OpenAI''s responses, or Gemini''s.';
alter table model_endpoints enable row level security;
create policy tenant on model_endpoints to arbe_app using (house_id = current_house());
grant select, insert, update, delete on model_endpoints to arbe_app;

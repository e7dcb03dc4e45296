-- The secrets of houses: named values, sealed under the data key of their house (package secret); and the places with
-- models that houses add.

-- Bots see neither the secrets nor what seals them, because what a bot reads it may be talked into saying. What a bot
-- needs, the server does for it, in a transaction without an agent.
create function bot_asks() returns boolean language sql stable
  return exists (select from public.agents a where a.id = public.current_agent() and a.kind = 'bot');
revoke execute on function bot_asks from public;
grant execute on function bot_asks to arbe_app;

create table house_keys (
  house_id   text primary key references houses (id) on delete cascade,
  sealed     bytea not null,
  created_at timestamptz not null default now()
);
comment on table house_keys is 'The data key of each house that has secrets, under the root key of the installation.';
comment on column house_keys.created_at is 'When the key was made; a rotation makes a new one.';

create table sealed_values (
  id       uuid primary key default gen_random_uuid(),
  house_id text not null references houses (id) on delete cascade,
  sealed   bytea not null check (length(sealed) < 70000),
  unique (house_id, id)
);
comment on table sealed_values is 'Values under the data key of their house, which also binds each to its house and its name.';
create index on sealed_values (house_id);

-- No version wrote to the table before, so a row has no value.
delete from secrets;
alter table secrets
  add constraint secrets_name_check check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'),
  add foreign key (house_id, vault_secret_id) references sealed_values (house_id, id),
  add column redacted boolean not null default true,
  add column set_by uuid references agents (id) on delete set null,
  add column set_at timestamptz not null default now(),
  add column used_at timestamptz,
  add column revision bigint not null generated always as identity;
comment on column secrets.vault_secret_id is 'The sealed value (sealed_values).';
comment on column secrets.redacted is 'Whether the value is long enough to be removed from output.';
comment on column secrets.used_at is 'When the server last used it, accurate to a minute; null if never.';
comment on column secrets.revision is 'Changes with every new value.';
create index on secrets (house_id, vault_secret_id);

create table model_endpoints (
  house_id    text not null references houses (id) on delete cascade,
  name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
  base_url    text not null check (length(base_url) <= 2000),
  secret_name text not null default '',
  key_made    boolean not null default false,
  created_at  timestamptz not null default now(),
  primary key (house_id, name)
);
comment on table model_endpoints is 'Servers with models that a house added, which speak OpenAI''s chat/completions.';
comment on column model_endpoints.secret_name is 'The secret of the house with their key; empty if they want none.';
comment on column model_endpoints.key_made is 'Whether the secret was made for the server, with which it goes.';

alter table houses add column default_model text not null default '' check (length(default_model) <= 300);
comment on column houses.default_model is 'The model of bots that name none, as provider/model; empty for the default of the installation.';

alter table house_keys enable row level security;
alter table sealed_values enable row level security;
alter table model_endpoints enable row level security;
drop policy tenant on secrets;
create policy tenant on secrets to arbe_app using (house_id = current_house() and not bot_asks());
create policy tenant on house_keys to arbe_app using (house_id = current_house() and not bot_asks());
create policy tenant on sealed_values to arbe_app using (house_id = current_house() and not bot_asks());
create policy tenant on model_endpoints to arbe_app using (house_id = current_house());

grant select, insert, update, delete on house_keys, sealed_values, model_endpoints to arbe_app;

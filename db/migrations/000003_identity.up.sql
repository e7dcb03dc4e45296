-- Who is asking: API keys, browser sessions, login links. Tokens are kept as SHA-256 hashes: they hold
-- 256 random bits each, so a slow hash would protect nothing more.

create table api_keys (
  id         text primary key default generate_short_id(),
  agent_id   uuid not null references agents (id) on delete cascade,
  house_id   text,
  name       text not null,
  hash       bytea not null unique,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on column api_keys.house_id is 'The one house it is limited to; null: all houses of its agent.';
create index on api_keys (agent_id);
create index on api_keys (house_id);

create table login_sessions (
  hash       bytea primary key,
  agent_id   uuid not null references agents (id) on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index on login_sessions (agent_id);

create table login_links (
  hash       bytea primary key,
  agent_id   uuid not null references agents (id) on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at    timestamptz
);
create index on login_links (agent_id);

alter table api_keys enable row level security;
alter table login_sessions enable row level security;
alter table login_links enable row level security;
create policy own on api_keys to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy own on login_sessions to arbe_app using (agent_id = current_agent());
create policy own on login_links to arbe_app using (agent_id = current_agent());
grant select, insert, update on api_keys to arbe_app;
grant select, insert, delete on login_sessions to arbe_app;
grant select, insert on login_links to arbe_app;

-- Before it is known who asks, no policy can match: these narrow functions answer instead.

-- Whose credential this hash is of, and whether it still counts ('ok', 'expired', 'revoked'). No row: nobody's.
create function authenticate(p_hash bytea) returns table (
  agent_id uuid, house_id text, credential text, standing text
) language sql stable security definer set search_path = public, pg_temp as $$
  select agent_id, null::text, 'session', case when expires_at > now() then 'ok' else 'expired' end
    from login_sessions where hash = p_hash
  union all
  select agent_id, house_id, 'api_key',
      case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'ok' end
    from api_keys where hash = p_hash
$$;

-- Trades a login link for a session, once: 'ok', 'used', 'expired' or 'unknown'.
create function redeem_login_link(p_link bytea, p_session bytea, p_expires_at timestamptz) returns table (
  agent_id uuid, outcome text
) language plpgsql volatile security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
declare link login_links;
begin
  select * into link from login_links where hash = p_link for update;
  if not found then
    return query select null::uuid, 'unknown';
  elsif link.used_at is not null then
    return query select null::uuid, 'used';
  elsif link.expires_at <= now() then
    return query select null::uuid, 'expired';
  else
    update login_links set used_at = now() where hash = p_link;
    insert into login_sessions (hash, agent_id, expires_at) values (p_session, link.agent_id, p_expires_at);
    return query select link.agent_id, 'ok';
  end if;
end $$;

-- In which house the thing with this id is, and what the agent is there. No row: there is no such
-- thing, or the agent is not in its house.
create function place_of(p_kind text, p_id text, p_agent uuid) returns table (
  house_id text, role text
) language sql stable security definer set search_path = public, pg_temp as $$
  select m.house_id, m.role from members m
   where m.agent_id = p_agent and m.house_id = case p_kind
     when 'house' then p_id
     when 'thread' then (select house_id from threads where id = p_id)
     when 'environment' then (select house_id from environments where id = p_id)
     when 'sandbox' then (select house_id from sandboxes where id = p_id)
   end
$$;

revoke execute on function authenticate, redeem_login_link, place_of from public;
grant execute on function authenticate, redeem_login_link, place_of to arbe_app;

-- What the owner keeps about this installation, sealed. The server's role cannot read it.
create table sealed_settings (
  name   text primary key,
  sealed bytea not null
);
comment on table sealed_settings is 'Values under the installation''s key, such as the password of the server''s own role.';

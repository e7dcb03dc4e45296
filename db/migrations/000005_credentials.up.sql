-- Credentials: API keys, browser sessions, login links, thread tokens and invites. They are stored as SHA-256 hashes. As
-- each has 256 random bits, a slow hash would protect nothing more.

create table api_keys (
  id           text primary key default generate_short_id(),
  agent_id     uuid not null references agents (id) on delete cascade,
  house_id     text,
  name         text not null,
  hash         bytea not null unique,
  created_at   timestamptz not null default now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  created_by   uuid default current_agent() references agents (id) on delete set null,
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on column api_keys.house_id is 'The one house that it is limited to; null for all houses of its agent.';
comment on column api_keys.last_used_at is 'Accurate to about a minute.';
comment on column api_keys.created_by is 'Who made it: its holder, or an owner of the house for a bot.';
create index on api_keys (agent_id);
create index on api_keys (house_id);
create index on api_keys (house_id, created_by);

-- API keys are created for oneself or, by an owner, for a bot of the house. The only change of a key is its revocation.
alter table api_keys enable row level security;
create policy seen on api_keys for select to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy revoked on api_keys for update to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy made on api_keys for insert to arbe_app with check (
  created_by = current_agent() and (
    agent_id = current_agent() and coalesce(house_id = current_house(), true) or
    house_id = current_house() and
      exists (select from agents a where a.id = api_keys.agent_id and a.kind = 'bot') and
      exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner')));
grant select, insert, update (revoked_at) on api_keys to arbe_app;

create table login_sessions (
  hash       bytea primary key,
  agent_id   uuid not null references agents (id) on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index on login_sessions (agent_id);
alter table login_sessions enable row level security;
create policy own on login_sessions to arbe_app using (agent_id = current_agent());
grant select, insert, delete on login_sessions to arbe_app;

create table login_links (
  hash       bytea primary key,
  agent_id   uuid not null references agents (id) on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at    timestamptz
);
create index on login_links (agent_id);
alter table login_links enable row level security;
create policy own on login_links to arbe_app using (agent_id = current_agent());
grant select, insert on login_links to arbe_app;

-- The keys that sign thread tokens belong to the installation, not to a house.
create table signing_keys (
  id         text primary key default generate_short_id(),
  sealed     bytea not null,
  created_at timestamptz not null default now()
);
comment on table signing_keys is 'Sealed under the installation''s key. The newest key signs; older ones are kept until the last token that they signed has expired. A token is invalid if its key is not here.';
alter table signing_keys enable row level security;
create policy installation on signing_keys to arbe_app using (current_house() is null);
grant select, insert, delete on signing_keys to arbe_app;

-- Invites are links with which people join a house.
create table invites (
  id         text primary key default generate_short_id(),
  house_id   text not null references houses (id) on delete cascade,
  hash       bytea not null unique,
  role       text not null check (role in ('owner', 'member')),
  note       text not null default '',
  created_by uuid not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at    timestamptz,
  revoked_at timestamptz,
  foreign key (house_id, created_by) references members (house_id, agent_id) on delete cascade
);
comment on table invites is 'Whoever has the token may join the house, once. The invites of an owner are deleted when the owner leaves.';
comment on column invites.note is 'Whom it is for, as its owner wrote it; empty if nothing was written.';
create index on invites (house_id, created_at, id);
create index on invites (house_id, created_by);
alter table invites enable row level security;
create policy tenant on invites to arbe_app using (house_id = current_house());
grant select, insert, update (used_at, revoked_at), delete on invites to arbe_app;

-- What an owner made for a bot ends when the owner leaves the house or becomes a member: API keys and thread tokens, as
-- invites do. Otherwise a removed owner would stay in the house with the key of a bot.

-- Revokes the keys that a former owner made for bots. The trigger of api_keys notifies all servers.
create function revoke_keys_of_maker() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  update api_keys set revoked_at = now()
    where house_id = old.house_id and created_by = old.agent_id and agent_id <> old.agent_id and revoked_at is null;
  return null;
end $$;
create trigger revoke_keys after delete on members
  for each row when (old.role = 'owner') execute function revoke_keys_of_maker();
create trigger revoke_keys_of_demoted after update of role on members
  for each row when (old.role = 'owner' and new.role <> 'owner') execute function revoke_keys_of_maker();

-- A thread's tokens end when the thread stops running, and do not become valid again when it runs again.
create function end_thread_tokens() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  new.token_epoch := nextval(pg_get_serial_sequence('threads', 'token_epoch'));
  return new;
end $$;
create trigger end_tokens before update of status on threads
  for each row when (old.status <> new.status and not thread_runs(new.status)) execute function end_thread_tokens();

revoke execute on function revoke_keys_of_maker, end_thread_tokens from public;

-- Before the caller is known, no policy can match. These narrow functions answer instead, about one or many subjects in
-- one round trip. which is the index of the subject of a row; a subject that does not exist has no row.
-- notify_permission notifies of changes of the answers.

-- Exchanges a login link for a session, once: 'ok', 'used', 'expired' or 'unknown'.
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

-- Returns the agents of credentials by their hashes, and whether the credentials are valid ('ok', 'expired',
-- 'revoked'). lasts is the remaining time in seconds; null for no end.
create function credentials_of(p_hashes bytea[]) returns table (
  which bigint, agent_id uuid, house_id text, credential text, status text, lasts float8
) language sql stable security definer set search_path = public, pg_temp as $$
  select h.which, c.agent_id, c.house_id, c.credential, case when c.revoked then 'revoked' when c.expires_at <= now() then 'expired' else 'ok' end,
      extract(epoch from least(c.expires_at, now() + interval '1 year') - now()) -- least() handles infinity
    from unnest(p_hashes) with ordinality h (hash, which)
    cross join lateral (
      select s.agent_id, null as house_id, 'session' as credential, s.expires_at, false as revoked from login_sessions s where s.hash = h.hash
      union all
      select k.agent_id, k.house_id, 'api_key', k.expires_at, k.revoked_at is not null from api_keys k where k.hash = h.hash
    ) c
$$;

-- Returns whether tokens with a valid signature are still valid ('ok', or why not), and the roles of their agents in
-- the house. A member who left and came back cannot use tokens from before. The makers of tokens are the owners who made
-- them for bots, an empty text for a token that its holder made. A token whose maker is no owner any more is 'orphaned'.
create function tokens_of(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamptz[], p_makers text[])
returns table (which bigint, agent_id uuid, role text, status text, maker_joined_at timestamptz)
language sql stable security definer set search_path = public, pg_temp as $$
  select u.which, m.agent_id, m.role, case
      when not exists (select from signing_keys k where k.id = u.key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from u.joined then 'left'
      when u.maker <> '' and o.agent_id is null then 'orphaned'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> u.epoch then 'revoked'
      else 'ok'
    end, o.joined_at
    from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined, p_makers) with ordinality u (key, house, thread, agent, epoch, joined, maker, which)
    left join threads t on t.id = u.thread and t.house_id = u.house
    left join members m on m.agent_id = u.agent and m.house_id = u.house
    left join members o on o.agent_id = nullif(u.maker, '')::uuid and o.house_id = u.house and o.role = 'owner'
$$;

-- A server records when keys of any house were used.
create function note_api_keys_used(p_hashes bytea[], p_times timestamptz[]) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update api_keys k set last_used_at = greatest(k.last_used_at, u.time) from unnest(p_hashes, p_times) u (hash, time) where k.hash = u.hash
$$;

-- Returns the invite with this hash and its status: 'ok', 'used', 'revoked' or 'expired'. Whoever follows a link is not
-- in the house yet, so no policy can match; the token permits the answer.
create function invite_of(p_hash bytea) returns table (
  invite_id text, house_id text, house_name text, role text, invited_by text, expires_at timestamptz, status text
) language sql stable security definer set search_path = public, pg_temp as $$
  select i.id, i.house_id, h.name, i.role, coalesce(a.name, ''), i.expires_at,
      case when i.used_at is not null then 'used' when i.revoked_at is not null then 'revoked' when i.expires_at <= now() then 'expired' else 'ok' end
    from invites i join houses h on h.id = i.house_id join agents a on a.id = i.created_by
    where i.hash = p_hash
$$;

revoke execute on function redeem_login_link, credentials_of, tokens_of, note_api_keys_used, invite_of from public;
grant execute on function redeem_login_link, credentials_of, tokens_of, note_api_keys_used, invite_of to arbe_app;

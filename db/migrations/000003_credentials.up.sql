-- Credentials: API keys, browser sessions, login links and thread tokens. They are stored as SHA-256 hashes. As each
-- has 256 random bits, a slow hash would protect nothing more.

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
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on column api_keys.house_id is 'The one house that it is limited to; null for all houses of its agent.';
comment on column api_keys.last_used_at is 'Accurate to about a minute.';
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

-- The keys that sign thread tokens belong to the installation, not to a house.
create table signing_keys (
  id         text primary key default generate_short_id(),
  sealed     bytea not null,
  created_at timestamptz not null default now()
);
comment on table signing_keys is 'Sealed under the installation''s key. The newest key signs; older ones are kept until the last token that they signed has expired. A token is invalid if its key is not here.';

-- Whether a thread with this status may have someone working in it.
create function thread_runs(p_status text) returns boolean language sql immutable
  return p_status in ('open', 'idle', 'running');

-- A thread's tokens end when the thread stops running, and do not become valid again when it runs again.
create function end_thread_tokens() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  new.token_epoch := nextval(pg_get_serial_sequence('threads', 'token_epoch'));
  return new;
end $$;
create trigger end_tokens before update of status on threads
  for each row when (old.status <> new.status and not thread_runs(new.status)) execute function end_thread_tokens();

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
-- the house. A member who left and came back cannot use tokens from before.
create function tokens_of(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamptz[])
returns table (which bigint, agent_id uuid, role text, status text)
language sql stable security definer set search_path = public, pg_temp as $$
  select u.which, m.agent_id, m.role, case
      when not exists (select from signing_keys k where k.id = u.key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from u.joined then 'left'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> u.epoch then 'revoked'
      else 'ok'
    end
    from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined) with ordinality u (key, house, thread, agent, epoch, joined, which)
    left join threads t on t.id = u.thread and t.house_id = u.house
    left join members m on m.agent_id = u.agent and m.house_id = u.house
$$;

-- A server records when keys of any house were used.
create function note_api_keys_used(p_hashes bytea[], p_times timestamptz[]) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update api_keys k set last_used_at = greatest(k.last_used_at, u.time) from unnest(p_hashes, p_times) u (hash, time) where k.hash = u.hash
$$;

revoke execute on function thread_runs, end_thread_tokens, redeem_login_link, credentials_of, tokens_of, note_api_keys_used from public;
grant execute on function thread_runs, redeem_login_link, credentials_of, tokens_of, note_api_keys_used to arbe_app;

alter table api_keys enable row level security;
alter table login_sessions enable row level security;
alter table login_links enable row level security;
alter table signing_keys enable row level security;
create policy own on login_sessions to arbe_app using (agent_id = current_agent());
create policy own on login_links to arbe_app using (agent_id = current_agent());
create policy installation on signing_keys to arbe_app using (current_house() is null);

-- API keys are created for oneself or, by an owner, for a bot of the house. The only change of a key is its revocation.
create policy seen on api_keys for select to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy revoked on api_keys for update to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy made on api_keys for insert to arbe_app with check (
  agent_id = current_agent() and coalesce(house_id = current_house(), true) or
  house_id = current_house() and
    exists (select from agents a where a.id = api_keys.agent_id and a.kind = 'bot') and
    exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner'));

grant select, insert, update (revoked_at) on api_keys to arbe_app;
grant select, insert, delete on login_sessions to arbe_app;
grant select, insert on login_links to arbe_app;
grant select, insert, delete on signing_keys to arbe_app;

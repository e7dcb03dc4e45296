-- Scoped credentials: tokens of one thread, the keys that sign them, and API keys of one house.

-- The keys that sign threads' tokens are the installation's, no house's.
create table signing_keys (
  id         text primary key default generate_short_id(),
  sealed     bytea not null,
  created_at timestamptz not null default now()
);
comment on table signing_keys is 'Sealed under the installation''s key. The newest signs; an older one is kept until the last token it signed has expired. A token whose key is not here is not known.';
alter table signing_keys enable row level security;
create policy installation on signing_keys to arbe_app using (current_house() is null);
grant select, insert, delete on signing_keys to arbe_app;

-- Nobody can set it back, and a thread that is made again under an old id has another one.
alter table threads add column token_epoch bigint not null generated always as identity;
comment on column threads.token_epoch is 'Which of its tokens count: those that name this number. It changes when they are to end.';

-- Whether someone may be at work in a thread that is in this status.
create function thread_runs(p_status text) returns boolean language sql immutable
  return p_status in ('open', 'idle', 'running');

-- A thread's tokens end with what it does, and do not come to life again when it goes on.
create function end_thread_tokens() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  new.token_epoch := nextval(pg_get_serial_sequence('threads', 'token_epoch'));
  return new;
end $$;
create trigger end_tokens before update of status on threads
  for each row when (old.status <> new.status and not thread_runs(new.status)) execute function end_thread_tokens();

-- thread_token tells of a token whose signature is right whether it still counts ('ok', or why not), and what
-- its agent is in the house. A member who left and came back is not the one whom it was given to.
create function thread_token(p_key text, p_house text, p_thread text, p_agent uuid, p_epoch bigint, p_joined timestamptz)
returns table (role text, standing text)
language sql stable security definer set search_path = public, pg_temp as $$
  select m.role, case
      when not exists (select from signing_keys where id = p_key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from p_joined then 'left'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> p_epoch then 'revoked'
      else 'ok'
    end
    from (select) token
    left join threads t on t.id = p_thread and t.house_id = p_house
    left join members m on m.agent_id = p_agent and m.house_id = p_house
$$;
revoke execute on function end_thread_tokens, thread_token from public;
grant execute on function thread_token to arbe_app;

-- API keys are made for oneself or, by an owner, for a bot of the house; and nothing of one changes but that
-- it is revoked.
drop policy own on api_keys;
create policy seen on api_keys for select to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy revoked on api_keys for update to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
create policy made on api_keys for insert to arbe_app with check (
  agent_id = current_agent() and coalesce(house_id = current_house(), true) or
  house_id = current_house() and
    exists (select from agents a where a.id = api_keys.agent_id and a.kind = 'bot') and
    exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner'));
revoke update on api_keys from arbe_app;
grant update (revoked_at) on api_keys to arbe_app;

alter table api_keys add column last_used_at timestamptz;
comment on column api_keys.last_used_at is 'To within a minute or so.';

-- A server notes now and then which keys were used, of whatever house.
create function note_api_keys_used(p_hashes bytea[], p_times timestamptz[]) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update api_keys k set last_used_at = greatest(k.last_used_at, u.time) from unnest(p_hashes, p_times) u (hash, time) where k.hash = u.hash
$$;
revoke execute on function note_api_keys_used from public;
grant execute on function note_api_keys_used to arbe_app;

-- The holder of a key owns it.
create or replace function place_of(p_kind text, p_id text, p_agent uuid) returns table (
  house_id text, role text
) language sql stable security definer set search_path = public, pg_temp as $$
  select m.house_id, case when exists (select from api_keys where p_kind = 'API key' and id = p_id and agent_id = p_agent) then 'owner' else m.role end
   from members m
   where m.agent_id = p_agent and m.house_id = case p_kind
     when 'house' then p_id
     when 'thread' then (select house_id from threads where id = p_id)
     when 'environment' then (select house_id from environments where id = p_id)
     when 'sandbox' then (select house_id from sandboxes where id = p_id)
     when 'API key' then (select house_id from api_keys where id = p_id)
   end
$$;

-- How many credentials stand, and where many agents are, in one look at all who read on through a server. which
-- is the index of the one that a row is about; what is not there has none.
create function standing_of_hashes(p_hashes bytea[]) returns table (which bigint, standing text) language sql stable as $$
  select h.which, a.standing from unnest(p_hashes) with ordinality h (hash, which), authenticate(h.hash) a
$$;
create function standing_of_tokens(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamptz[])
returns table (which bigint, standing text) language sql stable as $$
  select u.which, t.standing from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined)
      with ordinality u (key, house, thread, agent, epoch, joined, which), thread_token(u.key, u.house, u.thread, u.agent, u.epoch, u.joined) t
$$;
create function places_of(p_kinds text[], p_ids text[], p_agents uuid[]) returns table (which bigint, house_id text, role text) language sql stable as $$
  select u.which, p.house_id, p.role from unnest(p_kinds, p_ids, p_agents) with ordinality u (kind, id, agent, which), place_of(u.kind, u.id, u.agent) p
$$;

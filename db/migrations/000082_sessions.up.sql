-- People see where they are logged in, and end sessions elsewhere.

alter table login_sessions
  add column id text not null default generate_short_id() unique,
  add column client text not null default '' check (length(client) <= 100),
  add column last_used_at timestamptz;
comment on column login_sessions.client is 'The program that uses it, in its own words; empty if it has not said.';
comment on column login_sessions.last_used_at is 'When it was last used, to within a few minutes; null if it was not used since this is recorded.';

-- That a session is used changes nobody's permission.
drop trigger notify_permission_changed on login_sessions;
create trigger notify_permission_changed after update on login_sessions for each row
  when (old.hash is distinct from new.hash or old.agent_id is distinct from new.agent_id or old.expires_at is distinct from new.expires_at)
  execute function notify_permission();

-- Notes uses of sessions, and by which program. It acts as the owner, because nobody else changes a session. What a session of a
-- program was created for stays its name.
create function note_sessions_used(p_hashes bytea[], p_times timestamptz[], p_clients text[]) returns void
  language sql security definer set search_path = public, pg_temp as $$
  update login_sessions s set last_used_at = greatest(s.last_used_at, u.time), client = coalesce(nullif(s.client, ''), left(u.client, 100))
    from unnest(p_hashes, p_times, p_clients) u (hash, time, client) where s.hash = u.hash
$$;
revoke execute on function note_sessions_used from public;
grant execute on function note_sessions_used to arbe_app;

create or replace function poll_device_login(p_device bytea, p_session bytea, p_expires_at timestamptz, p_interval interval)
  returns table (agent_id uuid, outcome text)
  language plpgsql security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
declare login device_logins;
begin
  select * into login from device_logins where device = p_device for update;
  if not found then
    outcome := 'unknown';
  elsif login.used_at is not null then
    outcome := 'used';
  elsif login.approved is false then
    outcome := 'denied';
  elsif login.expires_at <= now() then
    outcome := 'expired';
  elsif login.polled_at > now() - p_interval then
    outcome := 'early';
  elsif login.approved is null then
    update device_logins set polled_at = now() where device = p_device;
    outcome := 'pending';
  else
    update device_logins set used_at = now() where device = p_device;
    insert into login_sessions (hash, agent_id, expires_at, client) values (p_session, login.agent_id, p_expires_at, login.client);
    agent_id := login.agent_id;
    outcome := 'ok';
  end if;
  return next;
end $$;

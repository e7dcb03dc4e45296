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
    insert into login_sessions (hash, agent_id, expires_at) values (p_session, login.agent_id, p_expires_at);
    agent_id := login.agent_id;
    outcome := 'ok';
  end if;
  return next;
end $$;
drop function note_sessions_used;
drop trigger notify_permission_changed on login_sessions;
create trigger notify_permission_changed after update on login_sessions for each row
  when (old is distinct from new) execute function notify_permission();
alter table login_sessions drop column id, drop column client, drop column last_used_at;

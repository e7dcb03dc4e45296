-- A program on a machine without a browser logs in: a person approves its code in a browser elsewhere.

create table device_logins (
  device     bytea primary key,
  code       bytea not null unique,
  client     text not null check (length(client) between 1 and 100),
  address    text not null check (length(address) <= 64),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  polled_at  timestamptz,
  agent_id   uuid references agents (id) on delete cascade,
  approved   boolean,
  used_at    timestamptz,
  check ((agent_id is null) = (approved is null)),
  check (used_at is null or approved)
);
comment on table device_logins is 'Logins that programs began. They belong to no house, and are reached only with a code.';
comment on column device_logins.device is 'The hash of the secret of the program that logs in.';
comment on column device_logins.code is 'The hash of the code that its person approves.';
comment on column device_logins.client is 'What logs in, in its own words.';
comment on column device_logins.address is 'The address from which it was begun; empty if that is not known.';
comment on column device_logins.agent_id is 'Who approved or denied it; null if nobody has.';
comment on column device_logins.used_at is 'When the program got its session.';
create index on device_logins (expires_at);
create index on device_logins (agent_id);
alter table device_logins enable row level security;

create table device_login_guesses (
  agent_id uuid primary key references agents (id) on delete cascade,
  since    timestamptz not null default now(),
  wrong    integer not null default 0
);
comment on table device_login_guesses is 'How many codes of logins that nobody began a person has typed lately. They belong to no house.';
alter table device_login_guesses enable row level security;

-- Begins a login, and returns "ok". "taken": another login has the code. "full": too many are open, in all or from this address.
-- It drops some that ended long ago, so that there are never many.
create function begin_device_login(p_device bytea, p_code bytea, p_client text, p_address text, p_expires_at timestamptz, p_most integer, p_most_of_address integer)
  returns text
  language plpgsql security definer set search_path = public, pg_temp as $$
begin
  delete from device_logins where device in (
    select l.device from device_logins l where l.expires_at < now() - interval '1 hour' order by l.expires_at limit 10 for update skip locked);
  if (select count(*) >= p_most or p_address <> '' and count(*) filter (where address = p_address) >= p_most_of_address
      from device_logins where expires_at > now()) then
    return 'full';
  end if;
  insert into device_logins (device, code, client, address, expires_at) values (p_device, p_code, p_client, p_address, p_expires_at)
  on conflict do nothing;
  return case when found then 'ok' else 'taken' end;
end $$;
revoke execute on function begin_device_login from public;
grant execute on function begin_device_login to arbe_app;

-- Returns the login with a code, and approves or denies it in the name of the current agent, unless p_approve is null. The same
-- answer again changes nothing. An outcome other than "ok" says why there is no such login. An agent has few guesses: with them used up,
-- even a code that is right is refused.
create function answer_device_login(p_code bytea, p_approve boolean, p_guesses integer, p_guesses_for interval)
  returns table (outcome text, client text, address text, created_at timestamptz, expires_at timestamptz)
  language plpgsql security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
declare
  me uuid := current_agent();
  login device_logins;
  tried integer;
begin
  -- This locks the row, so that the guesses of an agent come one after another.
  insert into device_login_guesses as g (agent_id) values (me)
  on conflict (agent_id) do update set
    wrong = case when g.since > now() - p_guesses_for then g.wrong else 0 end,
    since = case when g.since > now() - p_guesses_for then g.since else now() end
  returning wrong into tried;
  if tried >= p_guesses then
    outcome := 'limited';
    return next;
    return;
  end if;
  select * into login from device_logins where code = p_code for update;
  if not found then
    update device_login_guesses set wrong = wrong + 1 where agent_id = me;
    outcome := 'unknown';
  elsif login.approved is not null and (login.agent_id <> me or login.approved is distinct from p_approve) then
    outcome := 'used';
  elsif login.approved is null and login.expires_at <= now() then
    outcome := 'expired';
  else
    if login.approved is null and p_approve is not null then
      update device_logins set agent_id = me, approved = p_approve where device = login.device;
    end if;
    outcome := 'ok';
    client := login.client;
    address := login.address;
    created_at := login.created_at;
    expires_at := login.expires_at;
  end if;
  return next;
end $$;
revoke execute on function answer_device_login from public;
grant execute on function answer_device_login to arbe_app;

-- Creates the session of an approved login, once, and returns its agent. Without a session, the outcome says why:
-- "pending" if nobody has answered, "early" if the program asks more often than p_interval.
create function poll_device_login(p_device bytea, p_session bytea, p_expires_at timestamptz, p_interval interval)
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
revoke execute on function poll_device_login from public;
grant execute on function poll_device_login to arbe_app;

-- People are notified, on their devices and by e-mail, of what needs them while they do not look: see internal/push.

create table notification_settings (
  agent_id      uuid primary key references agents (id) on delete cascade,
  digest        text not null default 'off' check (digest in ('off', 'hourly', 'daily')),
  quiet_from    int check (quiet_from between 0 and 1439),
  quiet_to      int check (quiet_to between 0 and 1439),
  zone          text not null default '' check (length(zone) <= 64),
  mailed_at     timestamptz,
  mail_position timestamptz,
  not_before    timestamptz not null default now(),
  check ((quiet_from is null) = (quiet_to is null))
);
comment on table notification_settings is 'How a person wants to be notified. No row: on their devices, at any time, and by no mail.';
comment on column notification_settings.quiet_from is 'The first minute of the day, in the zone, at which nothing is sent. The hours end before quiet_to, perhaps on the next day.';
comment on column notification_settings.mail_position is 'What needed them before this was considered for a mail.';
comment on column notification_settings.not_before is 'Their mail is not considered before this: they have quiet hours, a server is writing it, or one could not send it.';
alter table notification_settings enable row level security;
create policy own on notification_settings to arbe_app using (agent_id = current_agent());
grant select, insert, update (digest, quiet_from, quiet_to, zone, mailed_at, mail_position, not_before) on notification_settings to arbe_app;

create table push_devices (
  id         text primary key default generate_short_id(),
  agent_id   uuid not null references agents (id) on delete cascade,
  endpoint   bytea not null unique check (length(endpoint) = 32),
  sealed     bytea not null check (length(sealed) <= 4096),
  session    bytea references login_sessions (hash) on delete cascade,
  name       text not null default '' check (length(name) <= 100),
  created_at timestamptz not null default now(),
  notified_at    timestamptz,
  failures   int not null default 0,
  not_before timestamptz not null default now()
);
comment on table push_devices is 'The browsers in which a person wants notifications.';
comment on column push_devices.endpoint is 'The hash of the address at the push service. Whoever knows the address may send, so it is sealed, with the device''s keys.';
comment on column push_devices.session is 'The session of the browser. The device goes with it, so that nobody reads notifications after they logged out. Null if it was added with an API key.';
comment on column push_devices.not_before is 'Nothing is sent before this: the person has quiet hours, a server is sending, or the push service has refused for now.';
create index on push_devices (agent_id);
create index on push_devices (session);
alter table push_devices enable row level security;
create policy own on push_devices to arbe_app using (agent_id = current_agent());
grant select, delete, update (notified_at, failures, not_before) on push_devices to arbe_app;

create table push_positions (
  house_id  text not null,
  agent_id  uuid not null,
  device_id text not null references push_devices (id) on delete cascade,
  at        timestamptz not null,
  primary key (house_id, device_id),
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on table push_positions is 'Their device was notified of what needed a member before this time. No row: nothing since the device was added.';
create index on push_positions (device_id);
create index on push_positions (house_id, agent_id);
alter table push_positions enable row level security;
create policy tenant on push_positions to arbe_app using (house_id = (select current_house()))
  with check (house_id = (select current_house()) and agent_id = current_agent());
grant select, insert, update (at) on push_positions to arbe_app;

-- For each member: is anything newer than what they were notified of?
create index notices_newest on notices (house_id, agent_id, at);

-- Adds a device of the current agent, or replaces what is known of it, and returns its id; null if the agent has p_most others.
-- A browser has one address, so it goes from whoever used it before. It acts as the owner for that: who knows the address has the
-- browser.
create function add_push_device(p_endpoint bytea, p_sealed bytea, p_session bytea, p_name text, p_most int) returns text
  language plpgsql security definer set search_path = public, pg_temp as $$
declare
  me    uuid := current_agent();
  added text;
begin
  perform from agents where id = me for update;
  delete from push_devices where endpoint = p_endpoint and agent_id <> me;
  if (select count(*) from push_devices d where d.agent_id = me and d.endpoint <> p_endpoint) >= p_most then
    return null;
  end if;
  insert into push_devices as d (agent_id, endpoint, sealed, session, name) values (me, p_endpoint, p_sealed, p_session, left(p_name, 100))
    on conflict (endpoint) do update set sealed = excluded.sealed, session = excluded.session, name = excluded.name, failures = 0, not_before = now()
    returning d.id into added;
  return added;
end $$;

-- Reports whether anything may need a member since a time and until another. The query Needs says whether it does.
create function has_news(p_house text, p_agent uuid, p_since timestamptz, p_until timestamptz) returns boolean
  language plpgsql stable security definer set search_path = public, pg_temp as $$
begin
  return exists (select from notices n where n.house_id = p_house and n.agent_id = p_agent and n.at > p_since and n.at <= p_until)
    or exists (select from approvals a where a.house_id = p_house and a.state = 'open' and a.asked_at > p_since and a.asked_at <= p_until);
end $$;

-- Returns the devices of all houses for which there may be something that is at least p_wait old, with each house where it is, and
-- keeps other servers from them for p_lease. It acts as the owner, because a sweep looks at all houses.
create function claim_push_devices(p_wait interval, p_lease interval, p_most int)
  returns table (id text, agent_id uuid, house_id text, sealed bytea, failures int, until timestamptz)
  language plpgsql security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with due as materialized (
    select d.id, m.house_id from push_devices d
      join agents g on g.id = d.agent_id and g.kind = 'human'
      join members m on m.agent_id = d.agent_id
      left join push_positions p on p.house_id = m.house_id and p.device_id = d.id
      where d.not_before <= now()
        and (d.session is null or exists (select from login_sessions s where s.hash = d.session and s.expires_at > now()))
        and has_news(m.house_id, m.agent_id, coalesce(p.at, d.created_at), now() - p_wait)
  ), claimed as (
    update push_devices d set not_before = now() + p_lease
      where d.id in (select f.id from push_devices f where f.id in (select due.id from due) and f.not_before <= now()
        order by f.not_before, f.id limit p_most for update skip locked)
      returning d.id, d.agent_id, d.sealed, d.failures
  )
  select c.id, c.agent_id, due.house_id, c.sealed, c.failures, now() - p_wait from claimed c join due on due.id = c.id order by c.id, due.house_id;
end $$;

-- Returns the people who may get a mail now, with the verified address of their login, and keeps other servers from them for
-- p_lease. It acts as the owner, because a sweep looks at all people.
create function claim_digests(p_wait interval, p_lease interval, p_most int)
  returns table (agent_id uuid, email text, until timestamptz)
  language plpgsql security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with due as materialized (
    select s.agent_id, i.email from notification_settings s
      join agents g on g.id = s.agent_id and g.kind = 'human'
      join lateral (select l.email from login_identities l where l.agent_id = s.agent_id and l.email <> '' order by l.created_at desc limit 1) i on true
      where s.digest <> 'off' and s.not_before <= now()
        and coalesce(s.mailed_at, '-infinity') <= now() - case s.digest when 'hourly' then interval '1 hour' else interval '1 day' end
        and exists (select from members m where m.agent_id = s.agent_id
          and has_news(m.house_id, m.agent_id, coalesce(s.mail_position, '-infinity'), now() - p_wait))
  ), claimed as (
    update notification_settings s set not_before = now() + p_lease
      where s.agent_id in (select f.agent_id from notification_settings f where f.agent_id in (select due.agent_id from due) and f.not_before <= now()
        order by f.not_before, f.agent_id limit p_most for update skip locked)
      returning s.agent_id
  )
  select c.agent_id, due.email, now() - p_wait from claimed c join due on due.agent_id = c.agent_id;
end $$;

revoke execute on function add_push_device, has_news, claim_push_devices, claim_digests from public;
grant execute on function add_push_device, claim_push_devices, claim_digests to arbe_app;

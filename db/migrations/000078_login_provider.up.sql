-- People log in with an OpenID Connect provider.

create table login_identities (
  issuer     text not null check (length(issuer) between 1 and 500),
  subject    text not null check (length(subject) between 1 and 255),
  agent_id   uuid not null references agents (id) on delete cascade,
  email      text not null check (length(email) <= 320),
  created_at timestamptz not null default now(),
  primary key (issuer, subject),
  unique (issuer, agent_id)
);
comment on table login_identities is 'Who logs in with which account of a provider. Only the issuer and the subject identify an account: addresses get new owners.';
comment on column login_identities.email is 'The verified address at the last login.';
create index on login_identities (agent_id);
alter table login_identities enable row level security;
create policy own on login_identities to arbe_app using (agent_id = current_agent());
grant select, insert, update (email) on login_identities to arbe_app;

-- Returns whom an account of a provider logs in; null if nobody. Before the login, no policy can match; the token that the provider
-- signed permits the answer.
create function login_identity_of(p_issuer text, p_subject text) returns uuid
  language sql stable security definer set search_path = public, pg_temp as $$
  select agent_id from login_identities where issuer = p_issuer and subject = p_subject
$$;
revoke execute on function login_identity_of from public;
grant execute on function login_identity_of to arbe_app;

create table group_roles (
  house_id text not null,
  agent_id uuid not null,
  role     text not null check (role in ('owner', 'member')),
  by_hand  text check (by_hand is null or by_hand = 'member' and role = 'owner'),
  primary key (house_id, agent_id),
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade
);
comment on table group_roles is 'The roles that people have because of their groups at the login provider. They end when the groups do.';
comment on column group_roles.by_hand is 'The lower role that the person has without the groups; null if they are no member without them.';
create index on group_roles (agent_id);
alter table group_roles enable row level security;
create policy tenant on group_roles to arbe_app using (house_id = current_house());
create policy own on group_roles for select to arbe_app using (agent_id = current_agent());
grant select, insert, update, delete on group_roles to arbe_app;

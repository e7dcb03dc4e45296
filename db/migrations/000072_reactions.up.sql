-- Reactions to what was said, and by which key something was said.

create table reactions (
  house_id  text not null,
  thread_id text not null,
  stream_id bigint not null,
  seq       bigint not null,
  agent_id  uuid not null references agents (id) on delete cascade,
  emoji     text[] not null check (cardinality(emoji) <= 8),
  changes   int not null default 1 check (changes <= 100),
  began_at  timestamptz not null default now(),
  primary key (stream_id, seq, agent_id),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table reactions is 'How each member reacts to an entry. A row stays when the last reaction is taken back, so that the entries that say so are bounded.';
comment on column reactions.seq is 'The position of the entry.';
comment on column reactions.changes is 'How often the member has changed their reactions to the entry.';
create index reactions_by_thread on reactions (house_id, thread_id);
create index reactions_by_agent on reactions (agent_id);
alter table reactions enable row level security;
create policy tenant on reactions to arbe_app using (house_id = (select current_house()));
grant select, insert, update on reactions to arbe_app;

-- credentials_of also returns the names of keys.
drop function credentials_of;
create function credentials_of(p_hashes bytea[]) returns table (which bigint, agent_id uuid, house_id text, credential text, name text, status text, lasts double precision)
  language sql stable security definer set search_path = public, pg_temp as $$
  select h.which, c.agent_id, c.house_id, c.credential, c.name, case when c.revoked then 'revoked' when c.expires_at <= now() then 'expired' else 'ok' end,
      extract(epoch from least(c.expires_at, now() + interval '1 year') - now()) -- least() handles infinity
    from unnest(p_hashes) with ordinality h (hash, which)
    cross join lateral (
      select s.agent_id, null as house_id, 'session' as credential, '' as name, s.expires_at, false as revoked from login_sessions s where s.hash = h.hash
      union all
      select k.agent_id, k.house_id, 'api_key', k.name, k.expires_at, k.revoked_at is not null from api_keys k where k.hash = h.hash
    ) c
$$;
revoke execute on function credentials_of from public;
grant execute on function credentials_of to arbe_app;

-- Invites: links with which people join a house, each usable once. The token of an invite has 256 random bits and is
-- stored as its SHA-256 hash, like all credentials.

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
revoke execute on function invite_of from public;
grant execute on function invite_of to arbe_app;

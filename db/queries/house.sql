-- Owner: internal/house. Houses, their members and invites, and the agents who are members.

-- name: NewID :one
select generate_short_id();

-- name: LockHousesOf :exec
-- Lets one transaction at a time create a house for an agent, so that the limit is exact.
select pg_advisory_xact_lock(hashtextextended('arbe.houses_of/' || @agent_id::text, 0));

-- name: HouseStanding :one
-- What decides whether an agent may create a house: how many houses belong to the agent, whether it is in any house,
-- whether it owns the first house of the installation, and whether any house exists.
select owned::int as owned, member::bool as member, operator::bool as operator, any_house::bool as any_house from house_standing(@agent_id::uuid);

-- name: InsertHouse :exec
insert into houses (id, name) values (@id, @name);

-- name: SetHousePointers :exec
update houses set default_environment_id = sqlc.narg(default_environment_id), primary_thread_id = sqlc.narg(primary_thread_id) where id = @id;

-- name: GetHouse :one
select h.*, coalesce(m.role, '')::text as role from houses h
left join members m on m.house_id = h.id and m.agent_id = current_agent()
where h.id = @id;

-- name: ListHouses :many
-- The houses of the current agent; only_house limits them to one.
select h.*, m.role from houses h
join members m on m.house_id = h.id and m.agent_id = current_agent()
where (h.created_at, h.id) > (@after_time::timestamptz, @after_id::text)
  and (@only_house::text = '' or h.id = @only_house)
order by h.created_at, h.id
limit @max_rows;

-- name: UpdateHouse :execrows
update houses set
  name = coalesce(sqlc.narg(name), name),
  limits = coalesce(sqlc.narg(limits), limits),
  ask = coalesce(sqlc.narg(ask)::text[], ask),
  keep_threads_days = coalesce(sqlc.narg(keep_threads_days), keep_threads_days),
  keep_artifacts_days = coalesce(sqlc.narg(keep_artifacts_days), keep_artifacts_days),
  keep_threads_mb = coalesce(sqlc.narg(keep_threads_mb), keep_threads_mb),
  keep_artifacts_mb = coalesce(sqlc.narg(keep_artifacts_mb), keep_artifacts_mb),
  default_environment_id = case when @set_default::bool then sqlc.narg(default_environment_id) else default_environment_id end
where id = @id;

-- name: HouseRules :one
select limits, ask from houses where id = @id;

-- name: InsertMember :exec
insert into members (house_id, agent_id, role) values (@house_id, @agent_id, @role);

-- name: ListMembers :many
select a.*, m.role, m.joined_at, coalesce(b.handle, '')::text as handle from members m join agents a on a.id = m.agent_id
left join bots b on b.house_id = m.house_id and b.agent_id = m.agent_id
where m.house_id = @house_id and (m.joined_at, a.id) > (@after_time::timestamptz, @after_id::uuid)
order by m.joined_at, a.id
limit @max_rows;

-- name: InsertAgent :exec
insert into agents (id, kind, runtime, name, unnamed) values (@id, @kind, sqlc.narg(runtime), @name, @unnamed);

-- name: NamePerson :execrows
update agents set name = @name::text, unnamed = false where id = @id and kind = 'human';

-- name: GetAgent :one
select a.*, coalesce(b.handle, '')::text as handle from agents a
left join bots b on b.house_id = current_house() and b.agent_id = a.id
where a.id = @id;

-- name: LockMember :one
-- The role of a member, locked until the transaction ends. Returns no row if the agent is not in the house.
select role from members where house_id = @house_id and agent_id = @agent_id for share;

-- name: LockOwners :many
-- The owners of a house, locked against removal and demotion until the transaction ends.
select agent_id from members where house_id = @house_id and role = 'owner' order by agent_id for update;

-- name: MemberForUpdate :one
-- A member, locked until the transaction ends.
select a.*, m.role, m.joined_at from members m join agents a on a.id = m.agent_id
where m.house_id = @house_id and m.agent_id = @agent_id
for update of m;

-- name: SetMemberRole :exec
update members set role = @role where house_id = @house_id and agent_id = @agent_id;

-- name: DeleteMember :exec
delete from members where house_id = @house_id and agent_id = @agent_id;

-- name: InsertInvite :one
insert into invites (house_id, hash, role, note, created_by, expires_at)
values (@house_id, @hash, @role, @note, @created_by, now() + make_interval(secs => @lasts::float8))
returning *;

-- name: CountPendingInvites :one
select count(*) from invites where house_id = @house_id and used_at is null and revoked_at is null and expires_at > now();

-- name: ListPendingInvites :many
select i.id, i.house_id, i.role, i.note, i.created_at, i.expires_at, i.created_by, coalesce(a.name, '')::text as created_by_name
from invites i join agents a on a.id = i.created_by
where i.house_id = @house_id and i.used_at is null and i.revoked_at is null and i.expires_at > now()
  and (i.created_at, i.id) > (@after_time::timestamptz, @after_id::text)
order by i.created_at, i.id
limit @max_rows;

-- name: FindInvite :one
-- Runs before the house is known; see invite_of.
select invite_id::text as invite_id, house_id::text as house_id, house_name::text as house_name, role::text as role,
  invited_by::text as invited_by, expires_at::timestamptz as expires_at, status::text as status
from invite_of(@hash);

-- name: TakeInvite :execrows
-- Uses up an invite. Of several concurrent attempts, one succeeds. Affects no row if the invite cannot be used.
update invites set used_at = now() where id = @id and used_at is null and revoked_at is null and expires_at > now();

-- name: RevokeInvite :one
-- Returns no row if the invite does not exist. revoked is false if it had already ended.
with found as (select * from invites i where i.id = @id for update),
  revoked as (
    update invites i set revoked_at = now() from found
    where i.id = found.id and i.used_at is null and i.revoked_at is null and i.expires_at > now()
    returning i.id)
select role, note, exists (select from revoked)::boolean as revoked from found;

-- name: RevokeInvitesOf :exec
update invites set revoked_at = now() where house_id = @house_id and created_by = @agent_id and used_at is null and revoked_at is null;

-- name: DeleteEndedInvites :exec
-- Deletes the invites of a house that expired more than 30 days ago.
delete from invites where house_id = @house_id and expires_at < now() - interval '30 days';

-- name: HousesOfGroups :many
-- The houses in which the current agent has a role because of its groups.
select house_id from group_roles where agent_id = current_agent();

-- name: GroupRole :one
select role, by_hand from group_roles where house_id = @house_id and agent_id = @agent_id;

-- name: SetGroupRole :exec
insert into group_roles (house_id, agent_id, role, by_hand) values (@house_id, @agent_id, @role, sqlc.narg(by_hand))
on conflict (house_id, agent_id) do update set role = excluded.role, by_hand = excluded.by_hand;

-- name: DeleteGroupRole :exec
delete from group_roles where house_id = @house_id and agent_id = @agent_id;

-- name: IsFirstHouse :one
select is_first_house();

-- name: LockHouse :one
-- The name of a house, which is locked until the transaction ends.
select name from houses where id = @id for update;

-- name: NoteDeletedHouse :exec
select note_deleted_house();

-- name: DeletePeople :exec
-- Ends the memberships of the people of a house, and with them their keys and invites.
delete from members m using agents a where m.house_id = @house_id and a.id = m.agent_id and a.kind = 'human';

-- name: DeletePoliciesOf :exec
delete from activation_policies where house_id = @house_id;

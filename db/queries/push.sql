-- Owner: internal/push.

-- name: NotificationSettings :one
-- Returns no row if the current agent has chosen nothing.
select digest, quiet_from, quiet_to, zone from notification_settings where agent_id = current_agent();

-- name: SaveNotificationSettings :exec
insert into notification_settings as s (agent_id, digest, quiet_from, quiet_to, zone)
values (@agent_id, @digest, sqlc.narg(quiet_from), sqlc.narg(quiet_to), @zone)
on conflict (agent_id) do update set digest = excluded.digest, quiet_from = excluded.quiet_from, quiet_to = excluded.quiet_to, zone = excluded.zone, not_before = now();

-- name: LoginEmail :one
-- The verified address of the current agent's latest account. Returns no row for an agent without a verified address.
select email from login_identities where agent_id = current_agent() and email <> '' order by created_at desc limit 1;

-- name: AddPushDevice :one
select coalesce(add_push_device(@endpoint::bytea, @sealed::bytea, sqlc.narg(session)::bytea, @name::text, @most::int), '')::text as id;

-- name: PushDevices :many
select id, name, created_at, notified_at, failures from push_devices where agent_id = current_agent() order by created_at, id limit 100;

-- name: RemovePushDevice :execrows
delete from push_devices where agent_id = current_agent() and id = @id;

-- name: WakePushDevices :exec
-- The settings have changed, so that the quiet hours for which a device waits may have ended.
update push_devices set not_before = now() where agent_id = current_agent() and failures = 0;

-- name: ClaimPushDevices :many
select id::text as id, agent_id::uuid as agent_id, house_id::text as house_id, sealed::bytea as sealed, failures::int as failures, until::timestamptz as until
from claim_push_devices(make_interval(secs => @wait::float8), make_interval(secs => @lease::float8), @most::int);

-- name: PushPosition :one
-- The device was notified of what needed the member before this.
select coalesce((select p.at from push_positions p where p.house_id = @house_id and p.device_id = d.id), d.created_at)::timestamptz as at
from push_devices d where d.id = @device_id and d.agent_id = current_agent();

-- name: AdvancePush :exec
insert into push_positions as p (house_id, agent_id, device_id, at)
select @house_id, d.agent_id, d.id, @at from push_devices d where d.id = @device_id and d.agent_id = current_agent()
on conflict (house_id, device_id) do update set at = greatest(p.at, excluded.at);

-- name: ReleasePushDevice :exec
-- Lets the device be notified again after a pause. notified says that it was notified now.
update push_devices set not_before = now() + make_interval(secs => @pause::float8), failures = @failures, notified_at = case when @notified::boolean then now() else notified_at end
where id = @id and agent_id = current_agent();

-- name: ClaimDigests :many
select agent_id::uuid as agent_id, email::text as email, until::timestamptz as until
from claim_digests(make_interval(secs => @wait::float8), make_interval(secs => @lease::float8), @most::int);

-- name: ReleaseDigest :exec
-- Lets the person get a mail again after a pause. What needed them until the position is not considered again.
update notification_settings set not_before = now() + make_interval(secs => @pause::float8), mail_position = greatest(mail_position, sqlc.narg(at)::timestamptz),
  mailed_at = case when @mailed::boolean then now() else mailed_at end
where agent_id = current_agent();

-- name: HousesOfPerson :many
select h.id, h.name from members m join houses h on h.id = m.house_id where m.agent_id = current_agent() order by m.joined_at, h.id limit 200;

-- Owner: internal/sandbox. Environments and the sandboxes built from them.

-- name: InsertEnvironment :one
insert into environments (house_id, name, config, secret_bindings) values (@house_id, @name, @config, @secret_bindings) returning *;

-- name: GetEnvironment :one
select * from environments where id = @id;

-- name: LockEnvironment :one
select * from environments where id = @id for update;

-- name: ListEnvironments :many
select * from environments
where house_id = @house_id and (created_at, id) > (@after_time::timestamptz, @after_id::text)
order by created_at, id
limit @max_rows;

-- name: UpdateEnvironment :one
update environments set name = coalesce(sqlc.narg(name), name), config = coalesce(sqlc.narg(config), config),
  secret_bindings = coalesce(sqlc.narg(secret_bindings), secret_bindings) where id = @id
returning *;

-- name: DeleteEnvironment :exec
delete from environments where id = @id;

-- name: DefaultEnvironment :one
-- The environment of a thread's sandbox: the thread's own, otherwise its house's. Empty: neither.
select coalesce(t.environment_id, h.default_environment_id, '')::text from threads t
join houses h on h.id = t.house_id
where t.id = @thread_id;

-- name: InsertSandbox :one
insert into sandboxes (house_id, environment_id, provider, ephemeral) values (@house_id, @environment_id, @provider, @ephemeral)
returning *;

-- name: GetSandbox :one
select * from sandboxes where id = @id;

-- name: LockSandbox :one
select * from sandboxes where id = @id for update;

-- name: ListSandboxes :many
select * from sandboxes
where house_id = @house_id and (created_at, id) < (@before_time::timestamptz, @before_id::text)
order by created_at desc, id desc
limit @max_rows;

-- name: MatchSandboxes :many
-- ListSandboxes of those whose ids begin with a prefix.
select * from sandboxes
where house_id = @house_id and id ~>=~ @prefix::text and id ~<~ (@prefix::text || chr(127))
  and (created_at, id) < (@before_time::timestamptz, @before_id::text)
order by created_at desc, id desc
limit @max_rows;

-- name: LiveSandboxesOf :many
select * from sandboxes where environment_id = @environment_id and status = 'live';

-- name: MarkSandboxLive :exec
update sandboxes set status = 'live', provider_ref = @provider_ref::text, machine_id = sqlc.narg(machine_id) where id = @id;

-- name: MarkSandboxDead :exec
update sandboxes set status = 'dead', destroyed_at = now() where id = @id and status <> 'dead';

-- name: DeleteSandbox :exec
-- For a sandbox that was never created. Its threads then have none.
delete from sandboxes where id = @id;

-- name: ForgetDeadSandboxes :exec
-- The threads of a deleted sandbox then have none.
delete from sandboxes where environment_id = @environment_id and status = 'dead';

-- name: TouchMachine :exec
insert into machines (id) values (@id) on conflict (id) do update set seen_at = now();

-- name: MachineUnseen :one
-- For how many seconds no server of a machine has reported; 0 for an unknown machine.
select coalesce(extract(epoch from now() - (select seen_at from machines where id = @id)), 0)::float8;

-- name: ThreadMachine :one
-- The machine of the live sandbox that a thread is on; empty for none.
select coalesce((select s.machine_id from threads t join sandboxes s on s.id = t.sandbox_id where t.id = @id and s.status = 'live'), '')::text;

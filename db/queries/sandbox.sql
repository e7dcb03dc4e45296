-- Owner: internal/sandbox. Environments and the sandboxes built from them.

-- name: InsertEnvironment :one
insert into environments (house_id, name, config) values (@house_id, @name, @config) returning *;

-- name: GetEnvironment :one
select * from environments where id = @id;

-- name: ListEnvironments :many
select * from environments
where house_id = @house_id and (created_at, id) > (@after_time::timestamptz, @after_id::text)
order by created_at, id
limit @max_rows;

-- name: UpdateEnvironment :one
update environments set name = coalesce(sqlc.narg(name), name), config = coalesce(sqlc.narg(config), config) where id = @id
returning *;

-- name: DeleteEnvironment :exec
delete from environments where id = @id;

-- name: DefaultEnvironment :one
-- The recipe a thread's sandbox is built from: the thread's own, else its house's. Empty: neither.
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

-- name: MarkSandboxLive :exec
update sandboxes set status = 'live', provider_ref = @provider_ref::text where id = @id;

-- name: MarkSandboxDead :exec
update sandboxes set status = 'dead', destroyed_at = now() where id = @id and status <> 'dead';

-- name: DeleteSandbox :exec
-- For one that was never made: the threads on it have none again.
delete from sandboxes where id = @id;

-- name: ForgetDeadSandboxes :exec
-- The threads that were on one have none again.
delete from sandboxes where environment_id = @environment_id and status = 'dead';

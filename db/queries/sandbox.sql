-- Owner: internal/sandbox. Environments and the sandboxes built from them.

-- name: InsertEnvironment :one
insert into environments (house_id, name, config, secret_bindings) values (@house_id, @name, @config, @secret_bindings) returning *;

-- name: GetEnvironment :one
select * from environments where id = @id;

-- name: LockEnvironment :one
select * from environments where id = @id for update;

-- name: GitHubAppSecrets :many
-- Those of some names that environments bind as private keys of GitHub Apps.
select distinct (g ->> 'secret')::text as secret from environments e cross join lateral jsonb_path_query(e.config, '$.git[*]') g
where e.house_id = @house_id and g ->> 'github_app' <> '' and g ->> 'secret' = any(@names::text[])
order by 1;

-- name: ListEnvironments :many
select * from environments
where house_id = @house_id and (created_at, id) > (@after_time::timestamptz, @after_id::text)
order by created_at, id
limit @max_rows;

-- name: UpdateEnvironment :one
update environments set name = coalesce(sqlc.narg(name), name), config = coalesce(sqlc.narg(config), config),
  secret_bindings = coalesce(sqlc.narg(secret_bindings), secret_bindings) where id = @id
returning *;

-- name: RebuildEnvironment :one
update environments set rebuilds = rebuilds + 1 where id = @id returning *;

-- name: DeleteEnvironment :exec
delete from environments where id = @id;

-- name: DefaultEnvironmentOf :one
-- The environment of a thread's sandbox: the thread's own, otherwise its house's default; empty if it has neither.
select coalesce(t.environment_id, h.default_environment_id, '')::text from threads t
join houses h on h.id = t.house_id
where t.id = @thread_id;

-- name: InsertSandbox :one
insert into sandboxes (house_id, environment_id, provider, own_account, ephemeral, replaces, replaces_for)
values (@house_id, @environment_id, @provider, @own_account, @ephemeral, sqlc.narg(replaces), sqlc.narg(replaces_for))
returning *;

-- name: ReplacementOf :one
-- The sandbox that replaces another one for one thread, or for all threads if replaces_for is empty. A live replacement comes
-- before one that is being built.
select * from sandboxes
where replaces = @replaces::text and coalesce(replaces_for, '') = @replaces_for::text and status <> 'dead'
order by status = 'live' desc, created_at desc
limit 1;

-- name: GetSandbox :one
select * from sandboxes where id = @id;

-- name: LockSandbox :one
select * from sandboxes where id = @id for update;

-- name: ListSandboxes :many
select * from sandboxes
where house_id = @house_id and (created_at, id) < (@before_time::timestamptz, @before_id::text)
  and (@provider::text = '' or provider = @provider) and (status <> 'dead' or not @existing::boolean)
order by created_at desc, id desc
limit @max_rows;

-- name: SandboxUses :many
-- thread_count includes direct messages; the lists of threads do not.
select s.id, e.name as environment_name, t.used_at, t.saved_at, coalesce(t.disk_bytes, 0)::bigint as disk_bytes,
  coalesce(t.running_ms, 0)::bigint as running_ms, coalesce(t.unpriced_ms, 0)::bigint as unpriced_ms, (coalesce(t.cost_nanos, 0) / 1000)::bigint as cost_micros,
  coalesce(t.hourly_micros, -1)::bigint as hourly_micros, (select count(*) from threads r where r.sandbox_id = s.id)::int as thread_count,
  array(select r.id from threads r where r.sandbox_id = s.id and r.parent_agent_id is null order by r.active_at desc, r.id limit 5)::text[] as thread_ids,
  array(select coalesce(r.name, '') from threads r where r.sandbox_id = s.id and r.parent_agent_id is null order by r.active_at desc, r.id limit 5)::text[] as thread_names
from sandboxes s join environments e on e.house_id = s.house_id and e.id = s.environment_id left join sandbox_trees t on t.sandbox_id = s.id
where s.house_id = @house_id and s.id = any (@ids::text[]);

-- name: LiveSandboxesIn :many
select * from sandboxes where house_id = @house_id and status = 'live' order by created_at desc, id desc limit @max_rows;

-- name: MatchSandboxes :many
-- ListSandboxes for the sandboxes whose ids begin with a prefix.
select * from sandboxes
where house_id = @house_id and id ~>=~ @prefix::text and id ~<~ (@prefix::text || chr(127))
  and (created_at, id) < (@before_time::timestamptz, @before_id::text) and (@provider::text = '' or provider = @provider)
  and (status <> 'dead' or not @existing::boolean)
order by created_at desc, id desc
limit @max_rows;

-- name: LiveSandboxesOf :many
select * from sandboxes where environment_id = @environment_id and status = 'live';

-- name: MarkSandboxLive :exec
update sandboxes set status = 'live', provider_ref = @provider_ref::text, machine_id = sqlc.narg(machine_id) where id = @id;

-- name: RecordSandboxDefaults :exec
update sandboxes set defaults = @defaults where id = @id;

-- name: MarkSandboxDead :execrows
update sandboxes set status = 'dead', destroyed_at = now() where id = @id and status <> 'dead';

-- name: DeleteSandbox :exec
-- For a sandbox whose creation failed. Its threads then have no sandbox.
delete from sandboxes where id = @id;

-- name: ForgetDeadSandboxes :exec
-- The threads of the deleted sandboxes then have no sandbox.
delete from sandboxes where environment_id = @environment_id and status = 'dead';

-- name: TouchMachine :exec
insert into machines (id) values (@id) on conflict (id) do update set seen_at = now();

-- name: MachineUnseen :one
-- How many seconds ago a server of a machine last reported; 0 for an unknown machine.
select coalesce(extract(epoch from now() - (select seen_at from machines where id = @id)), 0)::float8;

-- name: ThreadMachine :one
-- The machine of a thread's live sandbox. It is empty if the thread has no live sandbox.
select coalesce((select s.machine_id from threads t join sandboxes s on s.id = t.sandbox_id where t.id = @id and s.status = 'live'), '')::text;

-- name: SandboxTree :one
select * from sandbox_trees where sandbox_id = @sandbox_id;

-- name: TouchTree :exec
-- Does nothing if the sandbox no longer exists. A transaction that began earlier and ends later does not turn the time back,
-- because what ran in between would then count as saved.
insert into sandbox_trees (sandbox_id, house_id, used_at) select s.id, s.house_id, now() from sandboxes s where s.id = @sandbox_id
on conflict (sandbox_id) do update set used_at = greatest(sandbox_trees.used_at, excluded.used_at);

-- name: CountRunningTime :exec
select count_running_time(@sandbox_id::text, @state::text, coalesce(sqlc.narg(at)::timestamptz, now()), sqlc.narg(hourly)::bigint, make_interval(secs => @longest::float8), @before::bigint);

-- name: AddRunningTime :exec
select add_running_time(@house_id::text, @provider::text, @ms::bigint, @hourly::bigint);

-- name: SandboxSpending :one
-- How long the sandboxes of a house have run since the beginning of the month (UTC), and what that cost.
select (date_trunc('month', now() at time zone 'UTC') at time zone 'UTC')::timestamptz as since, coalesce(sum(running_ms), 0)::bigint as running_ms,
  coalesce(sum(unpriced_ms), 0)::bigint as unpriced_ms, (coalesce(sum(cost_nanos), 0) / 1000)::bigint as cost_micros
from sandbox_spending where house_id = @house_id and day >= date_trunc('month', now() at time zone 'UTC')::date;

-- name: RecordBoot :exec
-- The sandbox counts as used now, because somebody waits for it.
insert into sandbox_trees (sandbox_id, house_id, commits, used_at, saved_at, saved, steps)
values (@sandbox_id, @house_id, @commits, now(), sqlc.narg(saved_at), @saved, @steps)
on conflict (sandbox_id) do update set used_at = now(), commits = excluded.commits, saved_at = excluded.saved_at, saved = excluded.saved, steps = excluded.steps;

-- name: RecordSaved :exec
insert into sandbox_trees (sandbox_id, house_id, saved_at, saved) values (@sandbox_id, @house_id, @saved_at::timestamptz, @saved)
on conflict (sandbox_id) do update set saved_at = excluded.saved_at, saved = excluded.saved;

-- name: BeganElsewhere :one
-- Whether another sandbox that is not dead counts an artifact as what was saved of it: it began with these files, and has saved
-- none of its own yet.
select exists (select from sandbox_trees t join sandboxes s on s.id = t.sandbox_id
  where t.house_id = @house_id and t.sandbox_id <> @sandbox_id and s.status <> 'dead'
    and t.saved @> jsonb_build_array(jsonb_build_object('artifact', @artifact::text)))::bool;

-- name: RecordDisks :exec
-- Records the disk space of sandboxes.
update sandbox_trees t set disk_bytes = v.bytes from (select unnest(@ids::text[]) as id, unnest(@bytes::bigint[]) as bytes) v
where t.sandbox_id = v.id and t.disk_bytes <> v.bytes;

-- name: RecordHouseDisk :exec
insert into house_disks (house_id, machine_id, cached_bytes, most_bytes) values (@house_id, @machine_id, @cached_bytes, @most_bytes)
on conflict (house_id, machine_id) do update set cached_bytes = excluded.cached_bytes, most_bytes = excluded.most_bytes, measured_at = now();

-- name: HouseDisk :one
-- The disk space that a house uses on all machines, and the most that it may use on one.
select coalesce((select sum(t.disk_bytes) from sandbox_trees t join sandboxes s on s.id = t.sandbox_id where s.house_id = @house_id and s.status = 'live'), 0)::bigint as sandboxes,
  coalesce(sum(d.cached_bytes), 0)::bigint as cached, coalesce(max(d.most_bytes), 0)::bigint as most
from house_disks d where d.house_id = @house_id and d.measured_at > now() - interval '10 minutes';

-- name: UnsavedSandboxes :many
-- Each as house/id.
select (house_id || '/' || id)::text from unsaved_sandboxes(@machines::text[], make_interval(secs => @quiet::float8), @most::int);

-- name: SpareSandboxes :many
-- Each as house/id.
select (house_id || '/' || id)::text from spare_sandboxes(@machines::text[], make_interval(secs => @quiet::float8), @most::int);

-- name: BusySandboxes :many
-- Each as house/id.
select (house_id || '/' || id)::text from busy_sandboxes(@providers::text[], @machines::text[], make_interval(secs => @quiet::float8), @most::int);

-- name: LiveSandboxes :many
-- A page of the live sandboxes in the operator's account at a provider, each as house/id.
select (house_id || '/' || id)::text from live_sandboxes(@provider::text, @machines::text[], @after::text, @most::int);

-- name: HasSecret :one
select has_secret(@name)::boolean;

-- name: HousesWithSecrets :many
select house_id::text, name::text from houses_with_secrets(@names::text[], @most::int);

-- name: OwnSandboxes :many
-- The house's sandboxes that are not dead and are in its own account at one of the given drivers, newest first.
select * from sandboxes where house_id = @house_id and own_account and provider = any (@providers::text[]) and status <> 'dead'
order by created_at desc, id desc
limit @max_rows;

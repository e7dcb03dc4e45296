-- Owner: internal/retention. What the retention of houses deletes.

-- name: HousesWithRetention :many
select houses_with_retention()::text;

-- name: RetentionOf :one
select keep_threads_days, keep_artifacts_days, keep_threads_mb, keep_artifacts_mb from houses where id = @house_id;

-- name: StaleThreads :many
select id::text from stale_threads(@house_id, @before) limit @max_rows;

-- name: IsStaleThread :one
-- Whether a root is still stale. The end of the logs counts, which a thread's row shows a moment later.
with recursive below as (
  select t.id from threads t where t.id = @id
  union all
  select c.id from threads c join below b on c.parent_thread_id = b.id)
select (@id::text in (select id from stale_threads(@house_id, @before))
  and not exists (select from below b join thread_heads h on h.id = b.id where h.last_activity >= @before))::bool;

-- name: ExpireThreads :exec
-- Notes that a thread and those below it are deleted.
with recursive below as (
  select t.id, t.house_id from threads t where t.id = @id
  union all
  select c.id, c.house_id from threads c join below b on c.parent_thread_id = b.id)
insert into expired (kind, id, house_id, days) select 'thread', id, house_id, @days from below
on conflict do nothing;

-- name: ExpireArtifacts :execrows
with gone as (
  delete from artifacts a where a.id = any (array(select id from stale_artifacts(@house_id, @before) limit @max_rows)) returning a.id, a.house_id)
insert into expired (kind, id, house_id, days) select 'artifact', id, house_id, @days from gone
on conflict do nothing;

-- name: CountStale :one
-- What would be deleted now. A time of -infinity and a size of 0 delete nothing.
select threads::bigint, artifacts::bigint, bytes::bigint
from would_expire(@house_id, @threads_before, @artifacts_before, @quiet_before, @threads_bytes, @artifacts_bytes);

-- name: ExcessThreads :many
-- The roots of threads whose logs are too much, the oldest first.
select id::text from excess_threads(@house_id, @before, @bytes) order by active_at limit @max_rows;

-- name: IsQuietThread :one
-- Whether a root may still be deleted. The end of the logs counts, which a thread's row shows a moment later.
with recursive below as (
  select t.* from threads t where t.id = @id and t.house_id = @house_id
  union all
  select c.* from threads c join below b on c.parent_thread_id = b.id)
select coalesce(bool_and(b.active_at < @before::timestamptz and b.pinned_at is null and b.running_id is null and b.status <> 'running' and b.approvals = 0
  and b.id is distinct from h.primary_thread_id and not exists (select from thread_heads t where t.id = b.id and t.last_activity >= @before)), false)::bool
from below b join houses h on h.id = b.house_id;

-- name: ExpireExcess :execrows
with gone as (
  delete from artifacts a where a.id = any (array(select id from excess_artifacts(@house_id, @bytes) limit @max_rows)) returning a.id, a.house_id)
insert into expired (kind, id, house_id, days) select 'artifact', id, house_id, 0 from gone
on conflict do nothing;

-- name: NoteRetention :exec
-- The audit log says that what the transaction deletes is deleted by the retention of the house.
select set_config('app.via', encode('retention', 'hex') || ':', true);

-- name: ExpiredAfter :one
-- How many days something was kept that retention deleted. Returns no row if it deleted no such thing of the agent's houses.
select days from expired where kind = @kind and id = @id;

-- name: DropExpired :one
-- Deletes marks that are older than a time, of all houses, and returns how many.
select drop_expired(@before, @max_rows)::bigint;

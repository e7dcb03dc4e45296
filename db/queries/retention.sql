-- Owner: internal/retention. What the retention of houses deletes.

-- name: HousesWithRetention :many
select houses_with_retention()::text;

-- name: RetentionOf :one
select keep_threads_days, keep_artifacts_days from houses where id = @house_id;

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
-- What would be deleted now. A time of -infinity deletes nothing.
select
  (select coalesce(sum(threads), 0) from stale_threads(@house_id, @threads_before))::bigint as threads,
  (select count(*) from stale_artifacts(@house_id, @artifacts_before))::bigint as artifacts,
  (select coalesce(sum(size), 0) from stale_artifacts(@house_id, @artifacts_before))::bigint as bytes;

-- name: NoteRetention :exec
-- The audit log says that what the transaction deletes is deleted by the retention of the house.
select set_config('app.via', encode('retention', 'hex') || ':', true);

-- name: ExpiredAfter :one
-- How many days something was kept that retention deleted. Returns no row if it deleted no such thing of the agent's houses.
select days from expired where kind = @kind and id = @id;

-- name: DropExpired :one
-- Deletes marks that are older than a time, of all houses, and returns how many.
select drop_expired(@before, @max_rows)::bigint;

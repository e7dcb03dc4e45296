-- Owner: internal/thread.

-- name: InsertThread :one
-- No row: the id is taken.
insert into threads (id, house_id, stream_id, name, pinned_at, parent_thread_id, parent_agent_id, environment_id, agent_id, tags, status,
  forked_from_id, forked_at_seq)
values (@id, @house_id, @stream_id, sqlc.narg(name), sqlc.narg(pinned_at), sqlc.narg(parent_thread_id), sqlc.narg(parent_agent_id),
  sqlc.narg(environment_id), sqlc.narg(agent_id), @tags, @status, sqlc.narg(forked_from_id), sqlc.narg(forked_at_seq))
on conflict (id) do nothing
returning id;

-- name: GetThread :one
select sqlc.embed(t), coalesce(e.seq, 0)::bigint as tail, coalesce(e.ts, t.created_at)::timestamptz as last_activity from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true
where t.id = @id;

-- name: LockThread :one
select sqlc.embed(t), coalesce(e.seq, 0)::bigint as tail, coalesce(e.ts, t.created_at)::timestamptz as last_activity from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true
where t.id = @id
for update of t;

-- name: ListThreads :many
-- Pinned ones first (latest pin first), then by last activity. The page starts behind the given place.
select sqlc.embed(t), coalesce(e.seq, 0)::bigint as tail, coalesce(e.ts, t.created_at)::timestamptz as last_activity from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true
where t.house_id = @house_id
  and (@parent_thread_id::text = '' or t.parent_thread_id = @parent_thread_id)
  and (@forked_from_id::text = '' or t.forked_from_id = @forked_from_id)
  and (@tag::text = '' or t.tags @> array[@tag::text])
  and (@status::text = '' or t.status = @status)
  and (@first_page::bool or
    (coalesce(t.pinned_at, '-infinity'), coalesce(e.ts, t.created_at), t.id) <
    ((@before_pinned::text)::timestamptz, @before_activity::timestamptz, @before_id::text))
order by coalesce(t.pinned_at, '-infinity') desc, coalesce(e.ts, t.created_at) desc, t.id desc
limit @max_rows;

-- name: UpdateThread :exec
-- Every column that people may change; the caller read the row under its lock.
update threads set name = sqlc.narg(name), pinned_at = sqlc.narg(pinned_at), tags = @tags, environment_id = sqlc.narg(environment_id)
where id = @id;

-- name: SetThreadStatus :exec
update threads set status = @status where id = @id;

-- name: RevokeThreadTokens :execrows
update threads set token_epoch = default where id = @id;

-- name: SetThreadSandbox :exec
update threads set sandbox_id = @sandbox_id where id = @id;

-- name: RepointThreads :many
-- Every thread on one sandbox moves to another, together.
update threads set sandbox_id = @to_sandbox::text where house_id = @house_id and sandbox_id = @from_sandbox::text
returning id, stream_id;

-- name: DeleteThread :execrows
delete from threads where id = @id;

-- name: SandboxesBelow :many
-- The sandboxes of a thread and of all its descendants.
with recursive below as (
  select id, sandbox_id from threads where threads.id = @id
  union
  select t.id, t.sandbox_id from threads t join below b on t.parent_thread_id = b.id
)
select distinct sandbox_id::text from below where sandbox_id is not null;

-- name: ThreadsOnSandbox :one
select count(*) from threads where sandbox_id = @sandbox_id::text;

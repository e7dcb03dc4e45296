-- Owner: internal/artifact. Artifacts and the rows of their bytes.

-- name: BlobUse :one
-- The bytes of the house's artifacts, the bytes of all houses of the person to whom the house belongs, and the number of
-- uploads in progress in the house.
select
  coalesce((select sum(b.size) from blobs b where b.house_id = @house_id and exists (select from artifacts a where a.blob_id = b.id)), 0)::bigint as bytes,
  person_artifact_bytes(@house_id) as person_bytes,
  (select count(*) from blobs b where b.house_id = @house_id and b.sha256 is null)::bigint as uploads;

-- name: InsertBlob :one
insert into blobs (house_id) values (@house_id) returning id;

-- name: LockHouseBlobs :exec
-- Lets one transaction at a time add bytes to the houses of a person, so that the quotas are exact.
select pg_advisory_xact_lock(hashtextextended('arbe.blobs.' || p.person, 0)) from persons_of(array[@house_id::text]) p;

-- name: LockBlobOf :one
-- The lock keeps the blob from being collected until an artifact refers to it.
select id from blobs where house_id = @house_id and sha256 = @sha256 for key share;

-- name: FinishBlob :execrows
update blobs set sha256 = @sha256, size = @size where id = @id and sha256 is null;

-- name: DiscardUpload :one
select discard_upload(@id)::bool;

-- name: StreamOfThread :one
-- The lock keeps the log from being deleted until the transaction ends.
select s.id from threads t join streams s on s.house_id = t.house_id and s.name = t.stream_id where t.id = @thread_id for key share;

-- name: InsertArtifact :one
-- Returns no row if the id is already used.
insert into artifacts (id, house_id, kind, label, external_id, mime_type, byte_ref, blob_id, agent_id, thread_id, stream_id, run_id, resource_id, metadata)
values (coalesce(nullif(@id::text, ''), generate_short_id()), @house_id, @kind, sqlc.narg(label), sqlc.narg(external_id), sqlc.narg(mime_type), sqlc.narg(byte_ref),
  sqlc.narg(blob_id), sqlc.narg(agent_id), sqlc.narg(thread_id), sqlc.narg(stream_id), sqlc.narg(run_id), sqlc.narg(resource_id), @metadata)
on conflict (id) do nothing
returning id;

-- name: GetArtifact :one
select sqlc.embed(a), b.sha256, coalesce(b.size, 0)::bigint as size from artifacts a left join blobs b on b.id = a.blob_id where a.id = @id;

-- name: AttachableArtifacts :many
-- The given artifacts, as far as messages of a thread may name them. These have bytes, and belong to the thread itself or,
-- unless own_only is set, to the house and no thread.
select sqlc.embed(a), b.sha256, b.size::bigint as size from artifacts a join blobs b on b.id = a.blob_id
where a.id = any (@ids::text[]) and a.house_id = @house_id
  and (a.thread_id = @thread_id or a.thread_id is null and a.stream_id is null and not @own_only::bool);

-- name: AttachFiles :exec
insert into attached_files (house_id, thread_id, artifact_id) select @house_id, @thread_id, unnest(@ids::text[]) on conflict do nothing;

-- name: UnplacedFiles :many
-- The files that are attached to messages of a thread, of its parent, or of the thread that it was forked from, and that were not
-- written to a sandbox: the latest first.
select sqlc.embed(a), b.sha256, b.size::bigint as size
from attached_files f join artifacts a on a.id = f.artifact_id join blobs b on b.id = a.blob_id
where f.house_id = @house_id and f.thread_id in (
    select unnest(array[t.id, t.parent_thread_id, t.forked_from_id]) from threads t where t.house_id = @house_id and t.id = @thread_id::text)
  and not exists (select from placed_files p where p.sandbox_id = @sandbox_id and p.artifact_id = f.artifact_id)
order by f.attached_at desc, f.artifact_id limit @most;

-- name: PlaceFile :exec
insert into placed_files (house_id, sandbox_id, artifact_id) values (@house_id, @sandbox_id, @artifact_id) on conflict do nothing;

-- name: ListArtifacts :many
-- Newest first.
select sqlc.embed(a), b.sha256, coalesce(b.size, 0)::bigint as size from artifacts a left join blobs b on b.id = a.blob_id
where a.house_id = @house_id and (@thread_id::text = '' and not exists (select from threads d where d.id = a.thread_id and d.people is not null and not coalesce(current_agent() = any (d.people), false)) or a.thread_id = @thread_id)
  and (a.created_at, a.id) < (@before_time::timestamptz, @before_id::text)
order by a.created_at desc, a.id desc
limit @max_rows;

-- name: MatchArtifacts :many
-- ListArtifacts for the artifacts whose ids begin with the match, if it has at least four characters, or whose label equals
-- it. Each part is read from its own index: with an "or", the planner would read all artifacts of the house. The part for
-- the prefix has no order and no limit, because with them the planner, which cannot know how few ids have the prefix, might
-- read all artifacts, too.
select sqlc.embed(a), b.sha256, coalesce(b.size, 0)::bigint as size from artifacts a left join blobs b on b.id = a.blob_id
where a.id = any (array(
  (select p.id from artifacts p
    where p.house_id = @house_id and (@thread_id::text = '' and not exists (select from threads d where d.id = p.thread_id and d.people is not null and not coalesce(current_agent() = any (d.people), false)) or p.thread_id = @thread_id)
      and length(@match::text) >= 4 and p.id ~>=~ @match::text and p.id ~<~ (@match::text || chr(127)))
  union
  (select l.id from artifacts l
    where l.house_id = @house_id and (@thread_id::text = '' and not exists (select from threads d where d.id = l.thread_id and d.people is not null and not coalesce(current_agent() = any (d.people), false)) or l.thread_id = @thread_id)
      and l.label = @match::text
      and (l.created_at, l.id) < (@before_time::timestamptz, @before_id::text)
    order by l.created_at desc, l.id desc
    limit @max_rows)))
  and (a.created_at, a.id) < (@before_time::timestamptz, @before_id::text)
order by a.created_at desc, a.id desc
limit @max_rows;

-- name: DeleteArtifact :exec
delete from artifacts where id = @id;

-- name: CollectBlobs :exec
select collect_blobs();

-- name: DueBlobs :many
select house_id::text as house_id, id::text as id from due_blobs(@most);

-- name: ForgetBlob :exec
select forget_blob(@house_id, @id);

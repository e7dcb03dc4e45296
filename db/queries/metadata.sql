-- Owner: internal/stream. Streams that clients create and name themselves.

-- name: DescribeStream :one
select s.id, s.content_type, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0)::bigint as tail, (s.closed_at is not null)::bool as closed, (s.deleted_at is not null)::bool as deleted,
  s.ttl_seconds, s.expires_at, coalesce(s.expires_at < now() - (case when s.ttl_seconds is null then 0 else 1 end) * interval '1 second', false)::bool as expired,
  coalesce(s.last_stream_seq, '')::text as last_stream_seq,
  s.fork_seq, s.fork_sub, coalesce(source.name, '')::text as source
from streams s left join streams source on source.id = s.source_id
where s.house_id = @house_id and s.name = @name;

-- name: LockStream :exec
-- A transaction that writes to a stream or changes its row holds this lock until commit.
select from streams where house_id = @house_id and name = @name for no key update;

-- name: InsertStream :execrows
insert into streams (house_id, name, content_type, ttl_seconds, expires_at, source_id, fork_seq, fork_sub)
values (@house_id, @name, @content_type, sqlc.narg(ttl_seconds),
  coalesce(sqlc.narg(expires_at)::timestamptz, now() + make_interval(secs => sqlc.narg(ttl_seconds)::bigint)),
  sqlc.narg(source_id), sqlc.narg(fork_seq), sqlc.narg(fork_sub))
on conflict (house_id, name) do nothing;

-- name: CloseOwnStream :exec
select close_own_stream(@id);

-- name: UpdateStream :exec
-- Changes what an append changes besides the entries.
update streams set
  last_stream_seq = coalesce(sqlc.narg(last_stream_seq), last_stream_seq),
  expires_at = case when ttl_seconds is null then expires_at else now() + make_interval(secs => ttl_seconds) end
where id = @id;

-- name: DeleteOwnStream :exec
select delete_own_stream(@id);

-- name: Lineage :many
select id::bigint as id, first::bigint as first, before::bigint as before from lineage(@id) order by before;

-- name: GetProducer :one
select epoch, seq, closed from producers where stream_id = @stream_id and name = @name;

-- name: PutProducer :exec
insert into producers (stream_id, house_id, name, epoch, seq, closed)
values (@stream_id, @house_id, @name, @epoch, @seq, @closed)
on conflict (stream_id, name) do update set epoch = excluded.epoch, seq = excluded.seq, closed = excluded.closed;

-- name: TouchStreams :exec
select touch_streams(@ids::bigint[], @times::timestamptz[]);

-- name: DeleteExpiredStreams :exec
select delete_expired_streams(@before);

-- name: ClosedStreams :many
select closed_streams(@ids::bigint[])::bigint;

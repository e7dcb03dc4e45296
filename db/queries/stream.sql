-- Owner: internal/stream.

-- name: CreateStream :exec
insert into streams (house_id, name) values (@house_id, @name);

-- name: GetStream :one
select s.id, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0)::bigint as tail,
  (s.closed_at is not null)::bool as closed
from streams s where s.house_id = @house_id and s.name = @name and s.deleted_at is null;

-- name: StreamTails :many
select id::bigint as id, tail::bigint as tail from stream_tails(@ids::bigint[]);

-- name: ReadForward :many
-- The first rows of a range. The page ends with the row that reaches max_bytes, so that a page of large entries stays small.
select seq, id, author_agent_id, type, payload, ts from (
  select e.*, sum(octet_length(payload::text)) over (order by seq) - octet_length(payload::text) as bytes_before
  from entries e where stream_id = @stream_id and seq > @after and seq < @before
  order by seq limit @max_rows
) page
where bytes_before < @max_bytes::bigint
order by seq;

-- name: ReadBackward :many
-- The last rows of a range, last first; see ReadForward.
select seq, id, author_agent_id, type, payload, ts from (
  select e.*, sum(octet_length(payload::text)) over (order by seq desc) - octet_length(payload::text) as bytes_before
  from entries e where stream_id = @stream_id and seq > @after and seq < @before
  order by seq desc limit @max_rows
) page
where bytes_before < @max_bytes::bigint
order by seq desc;

-- name: PickForward :many
-- The rows of a range that have one of the types, or a type that begins with one of the groups; no types are all. Types that begin with
-- without are left out, unless it is empty. See ReadForward.
select seq, id, author_agent_id, type, payload, ts from (
  select e.*, sum(octet_length(payload::text)) over (order by seq) - octet_length(payload::text) as bytes_before
  from entries e where stream_id = @stream_id and seq > @after and seq < @before
    and (cardinality(@types::text[]) = 0 or type = any (@types::text[]) or exists (select from unnest(@groups::text[]) g where starts_with(type, g)))
    and (@without::text = '' or not starts_with(type, @without::text))
  order by seq limit @max_rows
) page
where bytes_before < @max_bytes::bigint
order by seq;

-- name: PickBackward :many
-- PickForward, but returns the last rows of the range, last first.
select seq, id, author_agent_id, type, payload, ts from (
  select e.*, sum(octet_length(payload::text)) over (order by seq desc) - octet_length(payload::text) as bytes_before
  from entries e where stream_id = @stream_id and seq > @after and seq < @before
    and (cardinality(@types::text[]) = 0 or type = any (@types::text[]) or exists (select from unnest(@groups::text[]) g where starts_with(type, g)))
    and (@without::text = '' or not starts_with(type, @without::text))
  order by seq desc limit @max_rows
) page
where bytes_before < @max_bytes::bigint
order by seq desc;

-- name: GetEntry :one
-- An entry of the stream itself, or one that it inherited.
select seq, id, author_agent_id, type, payload, ts from entries
where stream_id = @stream_id and id = @id
union all
select i.seq, i.id, i.author_agent_id, i.type, i.payload, i.ts from inherited_entries(@stream_id, array[@id::text]) i
limit 1;

-- name: AppendEntries :many
-- Returns one row per draft, in the order of the drafts. An empty author stands for arbe itself.
select stream_id::bigint as stream_id, seq::bigint as seq, id::text as id,
  coalesce(author_agent_id::text, '')::text as author, type::text as type, payload::json as payload, ts::timestamptz as ts
from append_entries(@stream, @ids::text[],
  (select array_agg(nullif(a, '')::uuid order by n) from unnest(@authors::text[]) with ordinality u (a, n)),
  @types::text[], cast(@payloads::text[] as json[]))
order by ord;

-- name: NotifyDeltas :exec
select pg_notify('arbe_delta', p) from unnest(@payloads::text[]) p;

-- name: HasEntry :one
select exists (select from entries where stream_id = @stream_id and id = any(@ids::text[]));

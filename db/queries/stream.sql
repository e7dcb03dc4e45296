-- Owner: internal/stream.

-- name: CreateStream :exec
insert into streams (house_id, name) values (@house_id, @name);

-- name: GetStream :one
select id, tail from streams where house_id = @house_id and name = @name;

-- name: ReadForward :many
select seq, id, author_agent_id, type, payload, ts from entries
where stream_id = @stream_id and seq > @after and seq < @before
order by seq
limit @max_rows;

-- name: ReadBackward :many
select seq, id, author_agent_id, type, payload, ts from entries
where stream_id = @stream_id and seq > @after and seq < @before
order by seq desc
limit @max_rows;

-- name: GetEntry :one
select seq, id, author_agent_id, type, payload, ts from entries
where stream_id = @stream_id and id = @id;

-- name: AppendEntries :many
-- One row per draft, in their order. An empty author is arbe itself.
select seq::bigint as seq, id::text as id, coalesce(author_agent_id::text, '')::text as author, type::text as type,
  payload::json as payload, ts::timestamptz as ts, fresh::bool as fresh
from append_entries(@stream, @ids::text[],
  (select array_agg(nullif(a, '')::uuid order by n) from unnest(@authors::text[]) with ordinality u (a, n)),
  @types::text[], cast(@payloads::text[] as json[]))
order by ord;

-- Owner: internal/dispatch.

-- name: Undecided :many
select stream_id::bigint as stream_id, house_id::text as house_id, thread_id::text as thread_id, decided::bigint as decided, tail::bigint as tail,
  coalesce(direct, '')::text as direct, coalesce(driver, '')::text as driver, coalesce(answering, '')::text as answering, settled::bool as settled, people::text[] as people,
  roster::bigint as roster
from undecided(@streams::bigint[]);

-- name: UndecidedAfter :many
select stream_id::bigint as stream_id, house_id::text as house_id, stream::text as stream from undecided_after(@after, @most);

-- name: DecideIdle :exec
select decide_idle(@streams::bigint[], @behind::bigint[], @upto::bigint[]);

-- name: Decide :execrows
-- Affects no row if another server decided first, or if the thread was deleted.
update decisions set decided = @upto::bigint where stream_id = @stream and decided = @behind::bigint;

-- name: Decided :one
-- Returns no row if the thread does not exist.
select decided from decisions where house_id = @house_id and thread_id = @thread_id;

-- name: RegisterServer :exec
insert into servers (key) values (@key) on conflict (key) do nothing;

-- name: UnregisterServer :exec
delete from servers where key = @key;

-- name: ListServers :many
-- long_dead: the server was marked dead more than an hour ago.
select key, (dead_at is not null)::bool as dead, coalesce(dead_at < now() - interval '1 hour', false)::bool as long_dead from servers;

-- name: MarkServerDead :exec
update servers set dead_at = coalesce(dead_at, now()) where key = @key;

-- name: MarkServerAlive :exec
update servers set dead_at = null where key = @key;

-- name: Chats :many
select seq::bigint as seq, id::text as id, author::text as author, payload::json as payload, ts::timestamptz as ts
from chats_between(@stream, @behind, @upto, sqlc.narg(handles)::text[], @most);

-- name: Place :one
-- The facts for a decision about a thread. Returns no row if the thread does not exist.
select s.id as stream_id, coalesce(t.parent_agent_id::text, '')::text as direct, coalesce(t.agent_id::text, '')::text as driver,
  coalesce(t.answering_agent_id::text, '')::text as answering, t.answering_decided as settled, coalesce(t.people::text[], '{}')::text[] as people, h.roster
from threads t join houses h on h.id = t.house_id join streams s on s.house_id = t.house_id and s.name = t.stream_id
where t.house_id = @house_id and t.id = @id;

-- name: FirstChat :one
-- The id of the first chat of a stream. Returns no row if nobody has said anything.
select id from entries where stream_id = @stream and type = 'chat' and author_agent_id is not null order by seq limit 1;

-- name: IndexNext :many
select index_next(@streams::bigint[], @milliseconds::int)::bigint as stream_id;

-- name: UnindexedAfter :many
select unindexed_after(@after, @most)::bigint as stream_id;

-- name: FileEdit :one
select path, before, after, result from file_edits where turn_id = @turn_id and call_id = @call_id;

-- name: InsertFileEdit :exec
insert into file_edits (house_id, turn_id, call_id, step, path, before, after, result)
values (@house_id, @turn_id, @call_id, @step, @path, sqlc.narg(before), @after, @result) on conflict do nothing;

-- name: ForgetFileEdits :exec
-- Deletes the edits of earlier steps, whose results are in the log.
delete from file_edits where turn_id = @turn_id and step <> @step;

-- name: EditedTexts :many
-- The texts in the edits at some positions.
select coalesce(e.payload ->> 'text', '')::text as text from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.seq = any (@seqs::bigint[]) and e.type = 'signal.chat.edited';

-- name: MeasureLogs :exec
-- Counts what was appended to logs since they were last measured.
select measure_logs(@ids::bigint[]);

-- name: HouseLogs :one
-- How large the logs of a house were when they were last measured.
select coalesce(sum(entries), 0)::bigint as entries, coalesce(sum(bytes), 0)::bigint as bytes from log_sizes where house_id = @house_id;

-- name: MemberLogs :one
-- How much of the logs of a house a person or bot wrote when they were last measured, and whether it is an owner of the house.
select coalesce((select sum(l.bytes) from log_shares l where l.house_id = @house_id and l.agent_id = @agent_id), 0)::bigint as bytes,
  exists (select from members m where m.house_id = @house_id and m.agent_id = @agent_id and m.role = 'owner') as owns;

-- name: LogBytes :one
-- How large all logs are together, those of the house that has most, and what the member of a house wrote who wrote most.
select total::bigint, most::bigint, most_of_member::bigint from log_bytes();

-- name: ThreadsToDelete :many
-- Threads of a house, but not its own.
select t.id from threads t where t.house_id = @house_id
  and t.id is distinct from (select h.primary_thread_id from houses h where h.id = @house_id)
limit @max_rows;

-- name: ForgetHouse :exec
select forget_house();

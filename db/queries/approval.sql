-- Owner: internal/turn.

-- name: LockAttempt :one
-- Locks a turn for whoever works on it. No row: the turn was begun once more elsewhere, or has ended.
select id from turns where id = @id and steps = @steps and attempts = @attempts and ended_at is null for update;

-- name: LockTurn :one
select * from turns where id = @id for update;

-- name: LockApprovals :exec
-- One transaction at a time adds to the open approvals of a house, so that the limits hold exactly.
select pg_advisory_xact_lock(hashtextextended('arbe.approvals/' || @house_id::text, 0));

-- name: ApprovalLoad :one
-- What may be too much for people: the open approvals of a thread and of its house, and the approvals that a turn has asked.
-- And whether the turn has asked for exactly this call before, and was not given a yes.
select count(*)::int as of_house, count(*) filter (where q.thread_id = @thread_id)::int as of_thread,
  (select count(*) from approvals a where a.turn_id = @turn_id)::int as of_turn,
  exists (select from approvals r where r.turn_id = @turn_id and r.tool = @tool and r.arguments = @arguments and r.state in ('denied', 'expired')) as refused
from approvals q where q.house_id = @house_id and q.state = 'open';

-- name: InsertApproval :one
insert into approvals (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, expires_at)
values (@house_id, @id, @thread_id, @turn_id, @agent_id, @call_id, @tool, @arguments, @expires_at)
returning *;

-- name: ApprovalsOf :many
-- The approvals about some calls of a turn. closed: nobody works in their thread any more. due: it is too late to answer.
-- stands: the person who answered is still in the house.
select sqlc.embed(q), (not thread_runs(t.status))::bool as closed, (q.state = 'open' and q.expires_at <= now())::bool as due, (q.answered_by is null or exists (select from members m where m.house_id = q.house_id and m.agent_id = q.answered_by))::bool as stands
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id
where q.turn_id = @turn_id and q.call_id = any (@calls::text[]);

-- name: FirstExpiry :one
-- How many approvals of a turn are open, and when the first of them expires.
select count(*)::int as open, coalesce(min(expires_at), now())::timestamptz as expires_at from approvals where turn_id = @turn_id and state = 'open';

-- name: ParkTurn :one
-- Leaves a turn to wait for people.
update turns set status = 'asking', due_at = @due_at::timestamptz, asking_since = now(), asks = asks + 1, deaths = greatest(deaths - 1, 0)
where id = @id and steps = @steps and attempts = @attempts and ended_at is null and stopped_by is null
returning *;

-- name: UnparkTurn :one
-- No row: the turn does not wait for people.
update turns set status = 'queued', due_at = null, waited_ms = waited_ms + greatest(coalesce(extract(epoch from now() - asking_since) * 1000, 0), 0)::bigint, asking_since = null
where id = @id and status = 'asking'
returning id;

-- name: EndApprovals :many
-- Ends open approvals of a turn: all, or one.
update approvals set state = @state, answered_at = now()
where turn_id = @turn_id and (@call_id::text = '' or call_id = @call_id) and state = 'open'
returning *;

-- name: GetApproval :one
select sqlc.embed(q), coalesce(a.name, '')::text as answered_by_name, coalesce(b.name, '')::text as bot_name, coalesce(t.name, '')::text as thread_name
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id
left join agents a on a.id = q.answered_by left join agents b on b.id = q.agent_id
where q.house_id = @house_id and q.id = @id;

-- name: MayAnswer :one
-- Whether the transaction's agent is a person of the house, who cannot be removed from it until the transaction ends. No
-- row: they are not in it.
select (not bot_asks())::bool as person from members where house_id = @house_id and agent_id = current_agent() for share;

-- name: AnswerApproval :one
-- No row: it is not open any more.
update approvals set state = @state, answered_by = @answered_by::uuid, answered_at = now(), reason = @reason
where house_id = @house_id and id = @id and state = 'open' and expires_at > now()
returning *;

-- name: ListApprovals :many
-- The open approvals of a house, or of one thread, the oldest first, after one.
select sqlc.embed(q), coalesce(b.name, '')::text as bot_name, coalesce(t.name, '')::text as thread_name
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id left join agents b on b.id = q.agent_id
where q.house_id = @house_id and q.state = 'open' and q.expires_at > now() and (@thread_id::text = '' or q.thread_id = @thread_id)
  and (q.asked_at, q.id) > (@after_time::timestamptz, @after_id::text)
order by q.asked_at, q.id
limit @max_rows;

-- name: AskingTurns :many
-- The turns of a thread that wait for people.
select id from turns where house_id = @house_id and thread_id = @thread_id and status = 'asking';

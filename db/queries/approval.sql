-- Owner: internal/approval.

-- name: LockApprovals :exec
-- One transaction at a time adds to the open approvals of a house, so that the limits hold exactly.
select pg_advisory_xact_lock(hashtextextended('arbe.approvals/' || @house_id::text, 0));

-- name: ApprovalLoad :one
-- Counts what the limits on approvals apply to: the open approvals of the house and of the thread, and all approvals that
-- the turn or run has requested. refused reports whether it has requested exactly this call before without being approved.
select count(*)::int as of_house, count(*) filter (where q.thread_id = @thread_id)::int as of_thread,
  (select count(*) from approvals a where a.turn_id = sqlc.narg(turn_id)::text or a.house_id = @house_id and a.thread_id = @thread_id and a.epoch = sqlc.narg(epoch)::bigint)::int as of_own,
  exists (select from approvals r where (r.turn_id = sqlc.narg(turn_id)::text or r.house_id = @house_id and r.thread_id = @thread_id and r.epoch = sqlc.narg(epoch)::bigint)
    and r.tool = @tool and r.arguments = @arguments and r.state in ('denied', 'expired')) as refused
from approvals q where q.house_id = @house_id and q.state = 'open';

-- name: InsertApproval :one
-- Returns no row if the approval was requested before.
insert into approvals (house_id, id, thread_id, turn_id, epoch, agent_id, call_id, tool, arguments, question, expires_at)
values (@house_id, @id, @thread_id, sqlc.narg(turn_id), sqlc.narg(epoch), @agent_id, @call_id, @tool, @arguments, @question, @expires_at)
on conflict (house_id, id) do nothing
returning *;

-- name: ApprovalsOf :many
-- The approvals of the given calls of a turn. closed: the thread has ended. due: the approval is open, but its time has
-- passed. stands: the person who answered, if any, is still in the house.
select sqlc.embed(q), (not thread_runs(t.status))::bool as closed, (q.state = 'open' and q.expires_at <= now())::bool as due, (q.answered_by is null or exists (select from members m where m.house_id = q.house_id and m.agent_id = q.answered_by))::bool as stands
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id
where q.turn_id = @turn_id and q.call_id = any (@calls::text[]);

-- name: FirstExpiry :one
-- How many approvals of a turn are open, and when the first of them expires; now if none is open.
select count(*)::int as open, coalesce(min(expires_at), now())::timestamptz as expires_at from approvals where turn_id = @turn_id and state = 'open';

-- name: EndApprovals :many
-- Ends open approvals of a turn or a run: all of them, only that of one call, or only those that have expired.
update approvals set state = @state, answered_at = now()
where state = 'open' and (turn_id = sqlc.narg(turn_id) or house_id = @house_id and thread_id = @thread_id and epoch = sqlc.narg(epoch))
  and (@call_id::text = '' or call_id = @call_id) and (not @due::bool or expires_at <= now())
returning *;

-- name: GetApproval :one
select sqlc.embed(q), coalesce(a.name, '')::text as answered_by_name, coalesce(b.name, '')::text as bot_name, coalesce(t.name, '')::text as thread_name
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id
left join agents a on a.id = q.answered_by left join agents b on b.id = q.agent_id
where q.house_id = @house_id and q.id = @id;

-- name: MayAnswer :one
-- Whether the transaction's agent is a person. The lock keeps the agent from being removed from the house until the
-- transaction ends. Returns no row if the agent is not in the house.
select (not bot_asks())::bool as person from members where house_id = @house_id and agent_id = current_agent() for share;

-- name: AnswerApproval :one
-- Returns no row if the approval is no longer open.
update approvals set state = @state, answered_by = @answered_by::uuid, answered_at = now(), reason = @reason
where house_id = @house_id and id = @id and state = 'open' and expires_at > now()
returning *;

-- name: ListApprovals :many
-- The open approvals of a house or of one thread, oldest first, after the given position.
select sqlc.embed(q), coalesce(b.name, '')::text as bot_name, coalesce(t.name, '')::text as thread_name
from approvals q join threads t on t.house_id = q.house_id and t.id = q.thread_id left join agents b on b.id = q.agent_id
where q.house_id = @house_id and q.state = 'open' and q.expires_at > now() and (@thread_id::text = '' and (t.people is null or current_agent() = any (t.people)) or q.thread_id = @thread_id)
  and (q.asked_at, q.id) > (@after_time::timestamptz, @after_id::text)
order by q.asked_at, q.id
limit @max_rows;

-- name: IsDueOfRun :one
-- Whether a run has an open approval that nobody has answered in time.
select exists (select from approvals where house_id = @house_id and thread_id = @thread_id and epoch = @epoch::bigint and state = 'open' and expires_at <= now());

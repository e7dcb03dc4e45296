-- Owner: internal/turn.

-- name: InsertTurn :one
-- No row: the bot has an active turn in the thread.
insert into turns (house_id, thread_id, agent_id, entry_id, reason, policy_id, chain, status, due_at, asked, asked_seqs)
values (@house_id, @thread_id, @agent_id, @entry_id, @reason, sqlc.narg(policy_id), @chain, @status, sqlc.narg(due_at), array[@entry_id::text], array[@seq::bigint])
on conflict (house_id, thread_id, agent_id) where ended_at is null do nothing
returning id;

-- name: SteerTurn :one
-- The turn's chain is the longest of those that led to it. No row: the bot has no active turn in the thread.
update turns set chain = greatest(chain, @chain),
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and ended_at is null and status <> 'delayed'
returning id;

-- name: PostponeTurn :one
-- No row: the bot has no delayed turn in the thread.
update turns set due_at = @due_at, attempts = 0, chain = greatest(chain, @chain),
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and status = 'delayed'
returning id;

-- name: HurryTurn :one
-- No row: the bot has no delayed turn in the thread.
update turns set status = 'queued', due_at = null, attempts = 0, entry_id = @entry_id, reason = @reason, policy_id = sqlc.narg(policy_id), chain = greatest(chain, @chain),
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and status = 'delayed'
returning id;

-- name: TryTurn :one
-- Counts an attempt to decide whether a delayed turn begins, and sets when the next one may be made if it fails. No row:
-- the turn is not delayed any more, or for longer.
update turns set attempts = attempts + 1, due_at = @again where id = @id and status = 'delayed' and due_at = @due_at
returning *;

-- name: DecideTurn :one
-- Ends the delay of a turn: it is queued or skipped. No row: it is not delayed any more, or for longer.
update turns set status = @status, due_at = null, attempts = 0, ended_at = case when @status = 'skipped' then now() end
where id = @id and status = 'delayed' and due_at = @due_at
returning id;

-- name: GetTurn :one
select * from turns where id = @id;

-- name: BeginTurn :one
-- No row: the turn has ended, or is delayed.
update turns set status = 'running', started_at = coalesce(started_at, now()), attempts = attempts + 1 where id = @id and ended_at is null and status <> 'delayed'
returning *;

-- name: StepTurn :execrows
-- Steps and attempts together only grow, so they name one attempt. No row: the turn was begun once more elsewhere, or has
-- ended.
update turns set steps = steps + 1, attempts = 0 where id = @id and steps = @steps and attempts = @attempts and ended_at is null;

-- name: EndTurn :one
-- No row: the turn was begun once more elsewhere, or has ended.
update turns set status = @status, ended_at = now() where id = @id and steps = @steps and attempts = @attempts and ended_at is null
returning *;

-- name: AbandonTurn :exec
-- No entry is written that would say so to the thread's row.
with abandoned as (
  update turns set status = 'failed', ended_at = now() where turns.id = @id and ended_at is null returning id, house_id, thread_id
)
update threads t set running_id = null, running_agent = null, running_since = null from abandoned a
where t.house_id = a.house_id and t.id = a.thread_id and t.running_id = a.id;

-- name: RequestStop :one
-- No row: the turn has ended.
update turns set stopped_by = coalesce(stopped_by, @by) where id = @id and ended_at is null
returning *;

-- name: ActiveTurns :many
select * from turns where house_id = @house_id and thread_id = @thread_id and ended_at is null order by created_at;

-- name: ActiveTurnsOf :many
-- Those of a bot, in all threads of its house.
select * from turns where house_id = @house_id and agent_id = @agent_id and ended_at is null order by created_at;

-- name: LastTurns :many
-- The state of each bot in a thread: whether it has an active turn, and when its last turn began.
select agent_id, bool_or(ended_at is null and status <> 'delayed')::bool as active, bool_or(status = 'delayed')::bool as delayed,
  max(coalesce(ended_at, created_at))::timestamptz as last
from turns where house_id = @house_id and thread_id = @thread_id and (ended_at is null or created_at > now() - interval '1 day')
group by agent_id;

-- name: ChainOf :one
-- How many turns led to a chat of a bot. No row: no turn wrote it.
select chain from turns where id = @id;

-- name: InsertModelCall :exec
insert into model_calls (house_id, thread_id, turn_id, id, agent_id, model, input, output, cache_read, cache_write, cost_micros, cost_known, estimated)
values (@house_id, @thread_id, @turn_id, @id, @agent_id, @model, @input, @output, @cache_read, @cache_write, @cost_micros, @cost_known, @estimated)
on conflict (turn_id, id) do nothing;

-- name: TurnUsed :one
select coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output, coalesce(sum(cache_read), 0)::bigint as cache_read,
  coalesce(sum(cache_write), 0)::bigint as cache_write, coalesce(sum(cost_micros), 0)::bigint as cost_micros,
  coalesce(bool_or(not cost_known), false)::bool as cost_unknown, count(*)::bigint as calls
from model_calls where turn_id = @turn_id;

-- name: DayUsed :one
-- What a house, and one of its threads, spent since midnight UTC.
select coalesce(sum(cost_micros), 0)::bigint as house, coalesce(sum(cost_micros) filter (where thread_id = @thread_id), 0)::bigint as thread
from model_calls where house_id = @house_id and made_at >= date_trunc('day', now() at time zone 'utc') at time zone 'utc';

-- name: HouseUsedToday :one
-- What a house used since midnight UTC.
select coalesce(sum(cost_micros), 0)::bigint as cost_micros, coalesce(bool_or(not cost_known), false)::bool as cost_unknown, count(*)::bigint as calls
from model_calls where house_id = @house_id and made_at >= date_trunc('day', now() at time zone 'utc') at time zone 'utc';

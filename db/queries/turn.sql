-- Owner: internal/turn.

-- name: InsertTurn :one
-- Returns no row if the bot has an active turn in the thread.
insert into turns (house_id, thread_id, agent_id, entry_id, reason, policy_id, tools, chain, root, status, due_at, asked, asked_seqs, asked_think)
values (@house_id, @thread_id, @agent_id, @entry_id, @reason, sqlc.narg(policy_id), sqlc.narg(tools), @chain, @root, @status, sqlc.narg(due_at), array[@entry_id::text], array[@seq::bigint], @asked_think)
on conflict (house_id, thread_id, agent_id) where ended_at is null do nothing
returning id;

-- name: SteerTurn :one
-- Passes an entry to a bot's active turn. The turn's chain is the longest of those that led to it. Its root changes when a
-- person speaks (fresh). Returns no row if the bot has no active turn in the thread.
update turns set chain = greatest(chain, @chain), root = case when @fresh::bool then @root else root end,
  tools = case when tools is null or sqlc.narg(tools)::text[] is null then null else array(select distinct unnest(tools || sqlc.narg(tools)::text[])) end,
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end,
  asked_think = @asked_think || asked_think
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and ended_at is null and status <> 'delayed'
  and (sqlc.narg(id)::text is null or id = sqlc.narg(id)::text)
returning id;

-- name: PostponeTurn :one
-- Passes an entry to a bot's delayed turn. An ambient turn waits again from now on; another one begins no later than before.
-- If the turn is ambient and the entry has another reason, the turn gets that reason, so that it begins in any case.
-- Returns no row if the bot has no delayed turn in the thread.
update turns set attempts = 0, chain = greatest(chain, @chain), root = case when @fresh::bool then @root else root end,
  due_at = case when reason = 'ambient' then @due_at when @reason::text = 'ambient' then due_at else least(due_at, @due_at) end,
  entry_id = case when reason = 'ambient' and @reason::text <> 'ambient' then @entry_id::text else entry_id end,
  policy_id = case when reason = 'ambient' and @reason::text <> 'ambient' then sqlc.narg(policy_id) else policy_id end,
  reason = case when reason = 'ambient' then @reason::text else reason end,
  tools = case when tools is null or sqlc.narg(tools)::text[] is null then null else array(select distinct unnest(tools || sqlc.narg(tools)::text[])) end,
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end,
  asked_think = @asked_think || asked_think
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and status = 'delayed'
returning id, due_at;

-- name: HurryTurn :one
-- Passes an entry to a bot's delayed turn, and ends the delay. Returns no row if the bot has no delayed turn in the thread.
update turns set status = 'queued', due_at = null, attempts = 0, entry_id = @entry_id, reason = @reason, policy_id = sqlc.narg(policy_id), chain = greatest(chain, @chain), root = case when @fresh::bool then @root else root end,
  tools = case when tools is null or sqlc.narg(tools)::text[] is null then null else array(select distinct unnest(tools || sqlc.narg(tools)::text[])) end,
  asked = case when @entry_id::text = any (asked) then asked else asked || @entry_id::text end,
  asked_seqs = case when @entry_id::text = any (asked) then asked_seqs else asked_seqs || @seq::bigint end,
  asked_think = @asked_think || asked_think
where house_id = @house_id and thread_id = @thread_id and agent_id = @agent_id and status = 'delayed'
returning id;

-- name: TryTurn :one
-- Counts an attempt to decide whether a delayed turn begins, and sets when the next attempt may be made if this one fails.
-- Returns no row if the turn is no longer delayed, or is delayed until another time.
update turns set attempts = attempts + 1, due_at = @again where id = @id and status = 'delayed' and due_at = @due_at
returning *;

-- name: DecideTurn :one
-- Ends the delay of a turn: it is queued or skipped. Returns no row if the turn is no longer delayed, or is delayed until
-- another time.
update turns set status = @status, due_at = null, attempts = 0, reserved_micros = 0, ended_at = case when @status = 'skipped' then now() end
where id = @id and status = 'delayed' and due_at = @due_at
returning id;

-- name: WithdrawEntries :exec
-- Takes entries back from a delayed turn that the transaction has locked. A decision that is being made about it is made again.
update turns set asked = @asked::text[], asked_seqs = @asked_seqs::bigint[], asked_think = asked_think - @gone::text[], entry_id = @entry_id, reason = @reason,
  policy_id = sqlc.narg(policy_id), attempts = 0, due_at = due_at + interval '1 microsecond'
where id = @id and status = 'delayed';

-- name: TurnsAbout :many
-- The bots that were asked about entries of a thread. One that only listens, and has not begun, does not count.
select distinct agent_id from turns where house_id = @house_id and thread_id = @thread_id and asked_seqs && @seqs::bigint[]
  and not (reason = 'ambient' and status in ('delayed', 'skipped'));

-- name: LateEdits :many
-- Which entries at some positions are edits that were made after a time.
select e.seq from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.seq = any (@seqs::bigint[]) and e.type = 'signal.chat.edited' and e.ts > @after;

-- name: GetTurn :one
select * from turns where id = @id;

-- name: BeginTurn :one
-- Returns no row if the turn has ended or is delayed.
update turns set status = 'running', started_at = coalesce(started_at, now()), attempts = attempts + 1, deaths = deaths + 1, due_at = null,
  waited_ms = waited_ms + greatest(coalesce(extract(epoch from now() - asking_since) * 1000, 0), 0)::bigint, asking_since = null
where id = @id and ended_at is null and status <> 'delayed'
returning *;

-- name: StepTurn :execrows
-- Counts a step. Steps and attempts together only grow while a turn runs, so they identify one attempt. Affects no row if
-- the turn was begun again or has ended.
update turns set steps = steps + 1, attempts = 0, asks = 0, deaths = 1, reserved_micros = 0, waits = 0, tries = 0, failing_since = null, failure = '', failure_kind = '' where id = @id and steps = @steps and attempts = @attempts and ended_at is null;

-- name: WaitTurn :execrows
-- Records that the provider of the turn's model did not answer. With due_at, the server leaves the turn until then. Affects
-- no row if the turn was begun again or has ended.
update turns set tries = @tries, failing_since = @since, failure = @failure, failure_kind = @failure_kind, due_at = sqlc.narg(due_at), reserved_micros = 0, fallback = @fallback, own_after = sqlc.narg(own_after),
  waits = waits + (sqlc.narg(due_at)::timestamptz is not null)::int, deaths = greatest(deaths - (sqlc.narg(due_at)::timestamptz is not null)::int, 0)
where id = @id and steps = @steps and attempts = @attempts and ended_at is null;

-- name: SurviveTurn :exec
-- Forgets the deaths of servers that worked on the turn before this one.
update turns set deaths = 1 where id = @id and steps = @steps and attempts = @attempts and ended_at is null;

-- name: LeaveTurn :exec
-- Records that the server returned from the turn, so that this attempt does not count as a death.
update turns set deaths = greatest(deaths - 1, 0) where id = @id and steps = @steps and attempts = @attempts and ended_at is null;

-- name: EndTurn :one
-- Returns no row if the turn was begun again or has ended.
update turns set status = @status, ended_at = now() where id = @id and steps = @steps and attempts = @attempts and ended_at is null
returning *;

-- name: AbandonTurn :exec
-- Ends a turn without an entry. It also updates the thread's row, which otherwise follows the entry.
with abandoned as (
  update turns set status = 'failed', ended_at = now() where turns.id = @id and ended_at is null returning id, house_id, thread_id
)
update threads t set running_id = null, running_agent = null, running_since = null from abandoned a
where t.house_id = a.house_id and t.id = a.thread_id and t.running_id = a.id;

-- name: RequestStop :one
-- Returns no row if the turn has ended.
update turns set stopped_by = coalesce(stopped_by, @by) where id = @id and ended_at is null
returning *;

-- name: ActiveTurns :many
select * from turns where house_id = @house_id and thread_id = @thread_id and ended_at is null order by created_at;

-- name: ActiveTurnsOf :many
-- The active turns of a bot in all threads of its house.
select * from turns where house_id = @house_id and agent_id = @agent_id and ended_at is null order by created_at;

-- name: LastTurns :many
-- What each bot does in a thread: whether it has an active or a delayed turn, and when its last turn ended or, if it has not
-- ended, was created. Ended turns that were created more than a day ago are left out.
select agent_id, bool_or(ended_at is null and status <> 'delayed')::bool as active, bool_or(status = 'delayed')::bool as delayed,
  max(coalesce(ended_at, created_at))::timestamptz as last
from turns where house_id = @house_id and thread_id = @thread_id and (ended_at is null or created_at > now() - interval '1 day')
group by agent_id;

-- name: ChainOf :one
-- How many turns led to a turn, and the entry of a person from which they follow. Returns no row if the turn does not exist.
select chain, root from turns where id = @id;

-- name: InsertModelCall :exec
-- Records a call, and adds its cost to the day's spending of its house. A repeated call changes nothing.
with new as (
  insert into model_calls (house_id, thread_id, turn_id, id, agent_id, model, input, output, cache_read, cache_write, cost_micros, cost_known, estimated, charged_micros)
  values (@house_id, @thread_id, @turn_id, @id, @agent_id, @model, @input, @output, @cache_read, @cache_write, @cost_micros, @cost_known, @estimated, @charged_micros)
  on conflict (turn_id, id) do nothing
  returning *
)
select add_spending(new.house_id, new.thread_id, coalesce(t.root, ''), (new.made_at at time zone 'utc')::date, new.charged_micros,
  case when @own::bool then new.cost_micros else 0 end, not new.cost_known) from new left join turns t on t.id = new.turn_id;

-- name: TurnUsed :one
select coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output, coalesce(sum(cache_read), 0)::bigint as cache_read,
  coalesce(sum(cache_write), 0)::bigint as cache_write, coalesce(sum(cost_micros), 0)::bigint as cost_micros,
  coalesce(bool_or(not cost_known), false)::bool as cost_unknown, count(*)::bigint as calls
from model_calls where turn_id = @turn_id;

-- name: DayUsed :one
-- What a house has spent since midnight UTC, how much of that in the tree of one of its threads, and how much follows from the
-- person of a root.
select coalesce(sum(charged_micros + own_micros), 0)::bigint as house,
  coalesce(sum(charged_micros + own_micros) filter (where tree_id = (select tree_of(@thread_id::text))), 0)::bigint as tree,
  coalesce((select m.micros from member_spending m where m.house_id = @house_id and m.day = (now() at time zone 'utc')::date
    and m.agent_id = (select person_of_root(@root::text))), 0)::bigint as member,
  coalesce(sum(charged_micros), 0)::bigint as charged, coalesce(bool_or(cost_unknown), false)::bool as cost_unknown, coalesce(sum(calls), 0)::bigint as calls
from spending where house_id = @house_id and day = (now() at time zone 'utc')::date;

-- name: MemberUsed :one
-- What follows from the messages of a person has cost in a house since midnight UTC.
select coalesce(sum(micros), 0)::bigint from member_spending
where house_id = @house_id and day = (now() at time zone 'utc')::date and agent_id = @agent_id::uuid;

-- name: TreeSpent :one
-- The model calls of a thread and of all threads below it, and their cost as far as it is known.
with recursive tree as (
  select threads.id from threads where threads.id = @thread_id
  union
  select t.id from threads t join tree on t.parent_thread_id = tree.id
)
select coalesce(sum(c.cost_micros), 0)::bigint as cost_micros, coalesce(bool_or(c.cost_unknown), false)::bool as cost_unknown, count(*)::bigint as calls from (
  select r.cost_micros, not r.cost_known as cost_unknown from run_calls r where r.house_id = @house_id and r.thread_id in (select tree.id from tree) and r.ended_at is not null
  union all
  select m.cost_micros, not m.cost_known from model_calls m where m.house_id = @house_id and m.thread_id in (select tree.id from tree)
) c;

-- name: LastModelCall :one
-- The last call of a model in the turns of a thread.
select c.model, (c.input + c.cache_read + c.cache_write)::bigint as tokens from turns t join model_calls c on c.turn_id = t.id
where t.house_id = @house_id and t.thread_id = @thread_id
order by c.made_at desc limit 1;

-- name: RootUsed :one
-- The cost of all turns and runs that follow from one entry of a person.
select (coalesce((select sum(greatest(c.cost_micros, c.charged_micros)) from turns t join model_calls c on c.turn_id = t.id
    where t.house_id = @house_id and t.root = @root), 0)
  + coalesce((select sum(greatest(r.cost_micros, r.charged_micros)) from run_calls r where r.house_id = @house_id and r.root = @root), 0))::bigint;

-- name: RunUsed :one
-- The cost of the model calls of a run.
select coalesce(sum(greatest(cost_micros, charged_micros)), 0)::bigint from run_calls where house_id = @house_id and thread_id = @thread_id and epoch = @epoch;

-- name: LockRoot :exec
-- Lets one transaction at a time add to what follows from an entry of a person, so that the limits are exact.
select pg_advisory_xact_lock(hashtextextended('arbe.root/' || @house_id::text || '/' || @root::text, 0));

-- name: RootTurns :one
-- How many turns follow from an entry of a person, and when the first of them was created; now if there are none.
select count(*)::int as turns, coalesce(min(created_at), now())::timestamptz as since from turns where house_id = @house_id and root = @root;

-- name: WaitingTurns :one
select of_thread::int as of_thread, of_house::int as of_house, of_person::int as of_person from waiting_turns(@house_id, @thread_id, @most);

-- name: ReserveCall :one
-- Reserves what a model call may cost. Returns the limit that leaves no room for the call; empty if there is room.
select reserve_call(@turn_id, @micros, @installation, @person)::text;

-- name: ChargedToday :one
-- What the installation's models cost today: for all houses, and for the houses of the person to whom the transaction's
-- house belongs.
select installation::bigint as installation, person::bigint as person from charged_today();

-- name: ThreadSummary :one
-- The summary from which bots begin to read a thread: the latest of the thread itself or, if it has none and is a fork, the
-- latest that its source had at the fork. Returns no row if bots read the thread from its first entry.
with recursive line (id, upto, depth) as (
  select @thread_id::text, 9223372036854775807::bigint, 0
  union all
  select t.forked_from_id, least(l.upto, t.forked_at_seq), l.depth + 1 from line l
    join threads t on t.house_id = @house_id and t.id = l.id
    where t.forked_from_id is not null and l.depth < 20
)
select s.*, l.depth::int as depth from line l
  join thread_summaries s on s.house_id = @house_id and s.thread_id = l.id and s.tail <= l.upto
order by l.depth, s.version desc limit 1;

-- name: InsertThreadSummary :execrows
-- Affects no row if this version exists.
insert into thread_summaries (house_id, thread_id, version, begins, summary, model, agent_id, unread, tail)
values (@house_id, @thread_id, @version, @begins, @summary, @model, sqlc.narg(agent_id), @unread, @tail)
on conflict do nothing;

-- name: ForgetSummaries :exec
-- Deletes the summaries that may cover an entry.
delete from thread_summaries where house_id = @house_id and thread_id = @thread_id and begins > @seq;

-- name: HadTurns :one
-- Whether a bot may have read this thread before a turn: another turn made a step, or the thread is a fork.
select (exists (select from turns t where t.house_id = @house_id and t.thread_id = @thread_id and t.id <> @turn_id and t.steps + (t.status = 'answered')::int > 0)
  or exists (select from threads f where f.house_id = @house_id and f.id = @thread_id and f.forked_from_id is not null))::bool as had;

-- name: LockAttempt :one
-- Locks a turn for the server that works on it. Returns no row if the turn was begun again or has ended.
select id from turns where id = @id and steps = @steps and attempts = @attempts and ended_at is null for update;

-- name: LockTurn :one
select * from turns where id = @id for update;

-- name: ParkTurn :one
-- Lets a turn wait for people. Returns no row if the turn was begun again, has ended or was stopped.
update turns set status = 'asking', due_at = @due_at::timestamptz, asking_since = now(), asks = asks + 1, deaths = greatest(deaths - 1, 0)
where id = @id and steps = @steps and attempts = @attempts and ended_at is null and stopped_by is null
returning *;

-- name: UnparkTurn :one
-- Queues a turn that waits for people. Returns no row if the turn does not.
update turns set status = 'queued', due_at = null, waited_ms = waited_ms + greatest(coalesce(extract(epoch from now() - asking_since) * 1000, 0), 0)::bigint, asking_since = null
where id = @id and status = 'asking'
returning id;

-- name: AskingTurns :many
-- The turns of a thread that wait for people.
select id from turns where house_id = @house_id and thread_id = @thread_id and status = 'asking';

-- Owner: internal/thread.

-- name: InsertThread :one
-- Returns no row if the id is already used.
insert into threads (id, house_id, stream_id, name, pinned_at, parent_thread_id, parent_agent_id, environment_id, agent_id, tags, status,
  forked_from_id, forked_at_seq, run_epoch, run_through, root, asked_by, answering_agent_id, answering_decided, people)
values (@id, @house_id, @stream_id, sqlc.narg(name), sqlc.narg(pinned_at), sqlc.narg(parent_thread_id), sqlc.narg(parent_agent_id),
  sqlc.narg(environment_id), sqlc.narg(agent_id), @tags, @status, sqlc.narg(forked_from_id), sqlc.narg(forked_at_seq), @run_epoch, @run_through, sqlc.narg(root), sqlc.narg(asked_by),
  sqlc.narg(answering_agent_id), @answering_decided, @people::uuid[])
on conflict (id) do nothing
returning id;

-- name: LockThreadsOfRoot :exec
-- Lets one transaction at a time create a thread with this root, so that the limit of threads per root is exact.
select pg_advisory_xact_lock(hashtextextended('arbe.threads_of_root/' || @house_id::text || '/' || @root::text, 0));

-- name: ThreadsOfRoot :one
-- How many threads bots created because of an entry of a person, the root.
select count(*) from threads where house_id = @house_id and root = @root;

-- name: GetThread :one
select * from thread_heads where id = @id;

-- name: LockThread :exec
-- The caller reads the thread in a later statement, because a statement that waits for a lock sees only what was committed
-- before the statement began.
select id from threads where id = @id for update;

-- name: ListThreads :many
-- Pinned threads come first (latest pin first), then the others by last activity. The page starts after the given position.
-- Direct messages of other people are left out; with shared, so are the agent's own. The page is read from the index
-- threads_order. A filter would make the planner choose another plan, so filtered lists have their own queries. The
-- subquery selects the page before anything is joined to it, whatever row counts the planner expects.
select * from thread_heads t
where t.id = any (array(
  select p.id from threads p
  where p.house_id = @house_id and (p.people is null or not @shared::bool and current_agent() = any (p.people))
    and (coalesce(p.pinned_at, '-infinity'::timestamptz), p.active_at, p.id) <
      ((@before_pinned::text)::timestamptz, (@before_activity::text)::timestamptz, @before_id::text)
  order by coalesce(p.pinned_at, '-infinity'::timestamptz) desc, p.active_at desc, p.id desc
  limit @max_rows))
order by coalesce(t.pinned_at, '-infinity'::timestamptz) desc, t.active_at desc, t.id desc;

-- name: FilterThreads :many
-- ListThreads with filters. An empty filter matches every thread.
select * from thread_heads t
where t.id = any (array(
  select p.id from threads p
  where p.house_id = @house_id and (p.people is null or not @shared::bool and current_agent() = any (p.people))
    and (@parent_thread_id::text = '' or p.parent_thread_id = @parent_thread_id)
    and (@forked_from_id::text = '' or p.forked_from_id = @forked_from_id)
    and (@tag::text = '' or p.tags @> array[@tag::text])
    and (@status::text = '' or p.status = @status)
    and (coalesce(p.pinned_at, '-infinity'::timestamptz), p.active_at, p.id) <
      ((@before_pinned::text)::timestamptz, (@before_activity::text)::timestamptz, @before_id::text)
  order by coalesce(p.pinned_at, '-infinity'::timestamptz) desc, p.active_at desc, p.id desc
  limit @max_rows))
order by coalesce(t.pinned_at, '-infinity'::timestamptz) desc, t.active_at desc, t.id desc;

-- name: ListForks :many
-- ListThreads for the forks of one thread.
select * from thread_heads t
where t.forked_from_id = @forked_from_id::text and (t.people is null or current_agent() = any (t.people))
  and (coalesce(t.pinned_at, '-infinity'::timestamptz), t.active_at, t.id) <
    ((@before_pinned::text)::timestamptz, (@before_activity::text)::timestamptz, @before_id::text)
order by coalesce(t.pinned_at, '-infinity'::timestamptz) desc, t.active_at desc, t.id desc
limit @max_rows;

-- name: MatchThreads :many
-- The ids of the threads whose ids begin with a prefix or whose name equals a name. An empty prefix matches no thread.
(select p.id from threads p
  where p.house_id = @house_id and @prefix::text <> '' and p.id ~>=~ @prefix::text and p.id ~<~ (@prefix::text || chr(127))
    and (p.people is null or current_agent() = any (p.people))
  limit @max_rows)
union
(select n.id from threads n where n.house_id = @house_id and n.name = @name::text and (n.people is null or current_agent() = any (n.people)) limit @max_rows);

-- name: ForkedThreads :many
-- The given threads that have forks.
select distinct forked_from_id::text from threads where forked_from_id = any (@ids::text[]);

-- name: ParentThreads :many
-- The given threads that have children.
select distinct parent_thread_id::text from threads where parent_thread_id = any (@ids::text[]);

-- name: SomeThreads :many
-- The given threads, as far as they exist.
select * from thread_heads where id = any (@ids::text[]);

-- name: TouchThreads :many
select touch_threads(@streams::bigint[])::bigint as stream;

-- name: RepairThreadActivity :one
select coalesce(repair_thread_activity(@after_id::text, @max_rows::int), '')::text as last;

-- name: UpdateThread :exec
-- Every column that people may change. The caller has read the row under its lock.
update threads set name = sqlc.narg(name), pinned_at = sqlc.narg(pinned_at), tags = @tags, environment_id = sqlc.narg(environment_id),
  answering_agent_id = sqlc.narg(answering_agent_id), answering_decided = @answering_decided, model = @model, think = @think
where id = @id;

-- name: RenameThread :exec
update threads set name = sqlc.narg(name) where id = @id;

-- name: SaidBefore :one
-- Whether a message of a thread that was not deleted is before a position. In a direct message, only those of its people count.
select exists (
  select from streams s join entries e on e.stream_id = s.id left join chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq
  where s.house_id = @house_id and s.name = @stream and e.seq < @seq and e.type = 'chat' and (c.seq is null or c.text is not null)
    and (sqlc.narg(people)::uuid[] is null or e.author_agent_id = any (sqlc.narg(people)::uuid[])))::bool;

-- name: SetThreadStatus :exec
update threads set status = @status where id = @id;

-- name: BeginRun :one
-- Starts a run of a thread, and returns its epoch. The caller has read the row under its lock.
update threads set status = 'running', run_epoch = run_epoch + 1, run_started_at = now(), heartbeat_at = null, run_from = @run_from,
  run_entries = 0, run_bytes = 0, run_ended_at = null, run_doing = null, run_tool = null, run_result = null, run_cost = 0, run_cost_unknown = false
where id = @id returning run_epoch;

-- name: MoveRun :execrows
-- Records what the runner of a run reports. No number decreases. Affects no row if the run is over.
update threads set heartbeat_at = now(), run_through = greatest(run_through, least(@through::bigint, @tail::bigint)),
  run_entries = run_entries + @entries::bigint, run_bytes = run_bytes + @bytes::bigint,
  run_doing = @doing::text, run_tool = coalesce(nullif(@tool::text, ''), run_tool), run_cost = greatest(run_cost, @cost::bigint), run_cost_unknown = @cost_unknown::bool
where id = @id and status = 'running' and run_epoch = @epoch;

-- name: EndRunAt :exec
-- Ends the run of a thread. Messages up to tail count as said to this run, so they start no other one; whoever ends the run
-- takes care of them.
update threads set run_through = greatest(run_through, @through::bigint), run_from = @tail, run_ended_at = now(), run_result = nullif(@result::text, ''),
  run_cost = greatest(run_cost, @cost::bigint), run_cost_unknown = @cost_unknown::bool, awaited_until = null, overdue = false
where id = @id;

-- name: BeginsRun :one
-- Whether one of the messages at the given positions may begin a run. The payload is searched as text, because Postgres
-- cannot parse one whose strings it cannot represent.
select exists (
  select from entries e join streams s on s.id = e.stream_id
  where s.house_id = @house_id and s.name = @stream and e.seq = any(@seqs::bigint[])
    and e.payload::text not like '%"run":{%' and e.payload::text not like '%"confined":true%');

-- name: QueueEntries :many
-- The entries after a position that determine which messages wait for a thread's agent. The texts of messages are left out,
-- because they do not matter for that.
select e.seq, e.id, e.type, coalesce(e.author_agent_id::text, '')::text as author, e.ts,
  (case e.type when 'chat' then case when e.payload->>'queue' = 'true' then '{"queue":true}' else '{}' end when 'signal.queue.edited' then json_build_object('entry_id', e.payload->>'entry_id')::text else e.payload::text end)::text as payload
from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.seq > @through and e.type = any(@types::text[])
order by e.seq limit @max_rows;

-- name: EntryAt :one
-- The payload of the entry at a position.
select e.payload::text as payload
from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.seq = @seq;

-- name: SaidEntry :one
-- An entry of a thread by its id. cancelled: it is a message that was cancelled while it waited.
select e.seq, e.type, coalesce(e.author_agent_id::text, '')::text as author, e.payload::text as payload,
  (e.type = 'chat' and exists (
    select from entries c where c.stream_id = e.stream_id and c.seq > e.seq
      and case c.type when 'signal.queue.cancelled' then c.payload->>'entry_id' = e.id else false end))::bool as cancelled
from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.id = @id;

-- name: TakeQueue :exec
-- Records that no message up to a position waits for the agent any more. The position never decreases.
update threads set run_through = greatest(run_through, @through::bigint) where id = @id;

-- name: LockChildren :exec
-- Lets one transaction at a time end a run below a thread, so that the last one sees that nothing else runs.
select pg_advisory_xact_lock(hashtextextended('arbe.children/' || @parent_thread_id::text, 0));

-- name: RunningThreads :many
select running_threads.id::text as id, running_threads.house_id::text as house_id from running_threads(@after_id::text, @max_rows::int);

-- name: BusyChildren :one
-- How many threads that were delegated from a thread have not ended.
select count(*) from threads where parent_thread_id = @parent_thread_id and asked_by is not null and status in ('idle', 'running');

-- name: LockDelegations :exec
-- Lets one transaction at a time delegate from a thread, so that the limit of its children is exact.
select pg_advisory_xact_lock(hashtextextended('arbe.delegations/' || @parent_thread_id::text, 0));

-- name: AwaitedBeside :one
-- How many threads that an agent delegated from a thread have not ended and are still waited for, not counting the thread
-- beside.
select count(*) from threads where parent_thread_id = @parent_thread_id and asked_by = @asked_by and status in ('idle', 'running') and not overdue and id <> @beside::text;

-- name: AwaitRun :exec
-- Sets how long the agent that delegated a thread waits for the end of its run, from now on.
update threads set awaited_until = now() + make_interval(secs => @seconds::float8), overdue = false where id = @id;

-- name: OverdueThreads :many
select overdue_threads.id::text as id, overdue_threads.house_id::text as house_id from overdue_threads(@max_rows::int);

-- name: EndWait :execrows
-- Records that nobody waits for the end of a thread's run any more. Affects no row if the time to wait has not passed, or if
-- this was already recorded.
update threads set overdue = true where id = @id and not overdue and awaited_until <= now();

-- name: RunningBelow :many
-- The running threads among a thread and all its descendants.
with recursive below as (
  select t.id, t.status from threads t where t.id = @id
  union
  select t.id, t.status from threads t join below b on t.parent_thread_id = b.id
)
select below.id from below where below.status = 'running';

-- name: ThreadDepth :one
-- How many ancestors a thread has.
with recursive above as (
  select t.id, t.parent_thread_id, 0 as depth from threads t where t.id = @id
  union all
  select t.id, t.parent_thread_id, a.depth + 1 from threads t join above a on t.id = a.parent_thread_id where a.depth < 100
)
select coalesce(max(above.depth), 0)::int as depth from above;

-- name: RevokeThreadTokens :execrows
update threads set token_epoch = default where id = @id;

-- name: SetThreadSandbox :exec
update threads set sandbox_id = @sandbox_id where id = @id;

-- name: RepointThreads :many
-- Moves all threads on a sandbox to another one, in one statement.
update threads set sandbox_id = @to_sandbox::text where house_id = @house_id and sandbox_id = @from_sandbox::text
returning stream_id;

-- name: RepointThread :many
-- Moves one thread from a sandbox to another one.
update threads set sandbox_id = @to_sandbox::text where id = @id and sandbox_id = @from_sandbox::text
returning stream_id;

-- name: DropThread :execrows
delete from threads where id = @id;

-- name: SandboxesBelow :many
-- The sandboxes of a thread and of all its descendants.
with recursive below as (
  select id, sandbox_id from threads where threads.id = @id
  union
  select t.id, t.sandbox_id from threads t join below b on t.parent_thread_id = b.id
)
select distinct sandbox_id::text from below where sandbox_id is not null;

-- name: RunningOnSandbox :one
select exists (select from threads where sandbox_id = @sandbox_id::text and status = 'running')::bool;

-- name: ThreadsOnSandbox :many
select id from threads where sandbox_id = @sandbox_id::text;

-- name: IsPrimaryThread :one
select exists (select from houses where primary_thread_id = @id::text);

-- name: LockDirect :exec
-- Lets one transaction at a time look for a direct message in a house, or create one.
select pg_advisory_xact_lock(hashtextextended('arbe.direct/' || @house_id::text, 0));

-- name: DirectThread :one
-- The latest open direct message of the given people to an agent or, if the agent is among them, between these people.
-- Forks do not count, because a fork is another conversation.
select id from threads
where house_id = @house_id and coalesce(people, '{}') = coalesce(@people::uuid[], '{}') and (parent_agent_id = @agent_id::uuid or @agent_id::uuid = any (people) and parent_agent_id = any (people))
  and status = 'open' and forked_at_seq is null
order by created_at desc, id desc limit 1;

-- name: KindOfAgent :one
-- Returns no row if the transaction's scope does not see the agent.
select agents.kind from agents where agents.id = @id;

-- name: PrimaryThread :one
select coalesce(primary_thread_id, '')::text as id from houses where id = @house_id;

-- name: SettleAnswering :exec
-- Settles which bot answers in a thread; its first message does so. Changes nothing if that is settled, or if the thread is
-- the house's primary thread, driven, a direct message or a fork.
update threads set answering_agent_id = @agent_id::uuid, answering_decided = true
where threads.id = @id and not answering_decided and agent_id is null and parent_agent_id is null and forked_at_seq is null
  and not exists (select from houses h where h.primary_thread_id = threads.id);

-- name: TakesTurns :one
-- Whether a bot of a house takes turns in threads. Returns no row if the house has no such bot.
select coalesce(a.runtime = 'arbe', false)::bool from bots b join agents a on a.id = b.agent_id where b.house_id = @house_id and b.agent_id = @agent_id;

-- name: NameOfAgent :one
-- Returns no row if the transaction's scope does not see the agent.
select coalesce(name, '')::text as name from agents where agents.id = @id;

-- name: CountUnsearchable :one
select coalesce(sum(greatest(d.decided - coalesce(c.indexed, (select s.fork_seq from streams s where s.id = d.stream_id), 0), 0)), 0)::bigint
from decisions d left join search_cursors c on c.stream_id = d.stream_id
where d.house_id = @house_id;

-- name: FindEntries :many
-- The latest entries of the transaction's house that match a text search query of Postgres and the filters.
select thread_id::text as thread_id, thread_name::text as thread_name, seq::bigint as seq, id::text as id, type::text as type, author::text as author,
  author_name::text as author_name, author_kind::text as author_kind, payload::json as payload, ts::timestamptz as ts
from find_entries(@words::text, @author::text, @thread::text, sqlc.narg(types)::text[], @failed::boolean, sqlc.narg(after)::timestamptz, sqlc.narg(before)::timestamptz, @most::int);

-- name: NamedThreads :many
-- The threads whose names contain a text in any case, latest first.
select t.id, coalesce(t.name, '')::text as name from threads t
where t.house_id = @house_id and t.name is not null and strpos(lower(t.name), lower(@part::text)) > 0
  and (t.people is null or current_agent() = any (t.people)) order by t.active_at desc limit @most;

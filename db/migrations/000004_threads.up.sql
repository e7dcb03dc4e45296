-- Threads: the conversations of a house, with what lists show of them and what runs of coding agents need.

create table threads (
  id               text primary key default generate_short_id(),
  house_id         text not null references houses (id) on delete cascade,
  stream_id        text not null unique,
  name             text,
  pinned_at        timestamptz,
  parent_thread_id text,
  parent_agent_id  uuid references agents (id) on delete cascade,
  environment_id   text,
  sandbox_id       text,
  agent_id         uuid,
  tags             text[] not null default '{}',
  forked_from_id   text,
  forked_at_seq    bigint check (forked_at_seq >= 0),
  token_epoch      bigint not null generated always as identity,
  status           text not null default 'open' check (
    (agent_id is null and status in ('open', 'closed')) or
    (agent_id is not null and status in ('idle', 'running', 'completed', 'failed', 'cancelled'))
  ),
  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),
  active_at        timestamptz not null default now(),
  last_said_by     uuid,
  last_said        text,
  running_id       text,
  running_since    timestamptz,
  running_agent    uuid,
  root             text,
  approvals        int not null default 0 check (approvals >= 0),
  run_epoch        bigint not null default 0 check (run_epoch >= 0),
  run_started_at   timestamptz,
  heartbeat_at     timestamptz,
  run_from         bigint not null default 0 check (run_from >= 0),
  run_through      bigint not null default 0 check (run_through >= 0),
  run_entries      bigint not null default 0,
  run_bytes        bigint not null default 0,
  asked_by         uuid,
  unique (house_id, id),
  check (num_nonnulls(parent_thread_id, parent_agent_id) <= 1),
  check (forked_from_id is null or forked_at_seq is not null),
  constraint threads_runs_are_driven check (run_epoch = 0 or agent_id is not null),
  foreign key (house_id, stream_id) references streams (house_id, name),
  foreign key (house_id, agent_id) references members (house_id, agent_id),
  foreign key (house_id, environment_id) references environments (house_id, id),
  foreign key (house_id, sandbox_id) references sandboxes (house_id, id) on delete set null (sandbox_id),
  foreign key (house_id, parent_thread_id) references threads (house_id, id) on delete cascade,
  foreign key (house_id, forked_from_id) references threads (house_id, id) on delete set null (forked_from_id)
);
comment on table threads is 'A conversation. This row describes it; its stream records what happened.';
comment on column threads.parent_agent_id is 'The agent it is a direct message to; an addressee, not a driver.';
comment on column threads.agent_id is 'The bot that drives it; null for a chat. It determines which values status may have.';
comment on column threads.forked_from_id is 'The thread that it was forked from; null if it is not a fork, or after the source was deleted.';
comment on column threads.forked_at_seq is 'The last entry that it shares with that thread; null if it is not a fork.';
comment on column threads.token_epoch is 'Only tokens that name this number are valid. It changes to end all tokens. It cannot be set back, and a thread that is created again under an old id gets another number.';
comment on column threads.active_at is 'When its last entry was written, at most about a second late; its creation if it has none. Lists are ordered by it. touch_threads updates it after the append: an append that also updated the thread would wait for the row''s lock and pay for its indexes.';
comment on column threads.last_said is 'The beginning of the last chat or command, on one line; null if there is none. last_said_by is its author.';
comment on column threads.running_id is 'The oldest of the commands and turns of bots that have not ended, running or waiting: the command''s entry or the turn; null if there is none. running_since is when it was requested or began.';
comment on column threads.running_agent is 'The bot, if running_id is its turn; null if that is a command.';
comment on column threads.root is 'If a bot created it in a turn, the root of that turn.';
comment on column threads.approvals is 'How many approvals are open in it. It follows the log as active_at does.';
comment on column threads.run_epoch is 'How many runs its bot has begun. The last one goes on while status is running. It is never set back, so that an older runner cannot be taken for a later one.';
comment on column threads.run_started_at is 'When the last run began.';
comment on column threads.heartbeat_at is 'When the runner of the last run last said that it is alive; null if it has not.';
comment on column threads.run_from is 'Where the log ended when the last run began.';
comment on column threads.run_through is 'The last chat that was given to its agent, as far as its runners said. The next run begins behind it.';
comment on column threads.run_entries is 'How many entries the last run has written, and run_bytes their size; as of its last heartbeat.';
comment on column threads.asked_by is 'Who delegated it: a person or a bot, which may have left the house since. Null for every other thread.';
create index threads_order on threads (house_id, coalesce(pinned_at, '-infinity'::timestamptz), active_at, id);
create index on threads (parent_thread_id);
create index on threads (sandbox_id);
create index on threads (forked_from_id) where forked_from_id is not null;
create index on threads (house_id) where pinned_at is not null;
create index on threads using gin (tags);
create index on threads (house_id);
create index threads_by_root on threads (house_id, root) where root is not null;
-- Threads are found by the beginning of their ids, whatever the collation of the database, and by their names.
create index threads_by_prefix on threads (house_id, id text_pattern_ops);
create index threads_by_name on threads (house_id, name) where name is not null;

alter table threads enable row level security;
create policy tenant on threads to arbe_app using (house_id = current_house());
grant select, insert, update, delete on threads to arbe_app;

-- Deferred, because the house is inserted before, and deleted after, its threads.
alter table houses add foreign key (id, primary_thread_id) references threads (house_id, id)
  on delete set null (primary_thread_id) deferrable initially deferred;

-- Neither activity, nor what runs, nor a heartbeat counts as a change of the thread.
create trigger threads_set_updated_at before update on threads
  for each row when (not (old.active_at is distinct from new.active_at or old.running_id is distinct from new.running_id
    or old.heartbeat_at is distinct from new.heartbeat_at and old.status = new.status))
  execute function set_updated_at();

create trigger notify_change after insert or delete on threads
  for each row execute function notify_change('thread', 'house_id', 'id');
-- A heartbeat changes nothing that lists show, and comes every five seconds from each run.
create trigger notify_change_of_row after update on threads
  for each row when (old.heartbeat_at is not distinct from new.heartbeat_at or old.status <> new.status)
  execute function notify_change('thread', 'house_id', 'id');

-- Whether a thread with this status may have someone working in it.
create function thread_runs(p_status text) returns boolean language sql immutable
  return p_status in ('open', 'idle', 'running');
revoke execute on function thread_runs from public;
grant execute on function thread_runs to arbe_app;

-- A thread's log is deleted with the thread, whatever deletes the thread.
create function delete_stream_of_thread() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform delete_stream(id) from streams where house_id = old.house_id and name = old.stream_id;
  return null;
end $$;
create trigger delete_stream after delete on threads
  for each row execute function delete_stream_of_thread();

-- A closed thread accepts no chats and no commands through any door: its log is paused. What arbe itself records, such as
-- the result of a command that is still running, is written nevertheless, and people can still read the thread.
create function pause_stream_of_thread() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  update streams set paused_at = case when new.status = 'closed' then now() end where house_id = new.house_id and name = new.stream_id;
  return null;
end $$;
create trigger pause_stream after update of status on threads
  for each row when ((old.status = 'closed') <> (new.status = 'closed')) execute function pause_stream_of_thread();

revoke execute on function delete_stream_of_thread, pause_stream_of_thread from public;

-- said_text returns the beginning of an entry's text on one line; a chat without a text shows the names of its files. A
-- text that Postgres cannot represent, such as one with \u0000, is null, so that it does not keep other threads of the
-- same statement from being touched.
create function said_text(p_type text, p_payload json) returns text language plpgsql immutable
  set search_path = pg_catalog, pg_temp as $$
begin
  return left(btrim(regexp_replace(left(case p_type
    when 'command' then '$ ' || coalesce(p_payload ->> 'command',
      (select string_agg(word, ' ' order by n) from json_array_elements_text(p_payload -> 'argv') with ordinality a (word, n)))
    else coalesce(nullif(btrim(left(p_payload ->> 'text', 400), E' \t\r\n'), ''),
      (select string_agg('[file: ' || coalesce(file ->> 'name', file ->> 'artifact_id') || ']', ' ' order by n)
        from json_array_elements(p_payload -> 'attachments') with ordinality a (file, n)))
  end, 400), '\s+', ' ', 'g')), 160);
exception when others then
  return null;
end $$;
revoke execute on function said_text from public;

-- touch_threads writes what lists show of the threads of these streams, in any house, into their rows, so that a list
-- reads one row per thread: when the last entry was written, the last chat or command, what runs, and how many approvals
-- are open. Each change of an approval is an entry, so a thread is touched whenever that number changes. A turn can end
-- without an entry; its thread is touched as well, so that no thread stays a running one. It returns the streams whose
-- threads are locked, which must be touched again. Several servers may touch the same threads.
create function touch_threads(p_streams bigint[]) returns setof bigint
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
  return query
  with stale as (
    select t.id, t.house_id, t.stream_id, s.id as stream, e.ts, e.seq, o.ended from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (select ts, seq from entries where stream_id = s.id order by seq desc limit 1) e
      cross join lateral (
        select case when t.running_agent is not null and not exists (select from turns a where a.id = t.running_id and a.ended_at is null)
          then t.running_id end as ended
      ) o
      where s.id = any (p_streams) and (t.active_at < e.ts or o.ended is not null)
  ), locked as (
    select id from threads where id in (select id from stale) for no key update skip locked
  ), working as (
    select j.args ->> 'stream' as stream_id, j.args ->> 'command' as id, null::uuid as agent, j.created_at as since from river.river_job j
      where j.queue = 'default' and j.kind = 'run_command' and j.state in ('available', 'running', 'scheduled', 'retryable')
        and j.args ->> 'stream' in (select stale.stream_id from stale)
    union all
    select stale.stream_id, a.id, a.agent_id, coalesce(a.started_at, a.created_at) from stale
      join turns a on a.house_id = stale.house_id and a.thread_id = stale.id and a.ended_at is null and a.status <> 'delayed'
  ), running as (
    select distinct on (w.stream_id) w.* from working w order by w.stream_id, w.since, w.id
  ), touched as (
    update threads t set active_at = greatest(t.active_at, stale.ts),
        last_said_by = case when said.seq is null then t.last_said_by else said.author_agent_id end,
        last_said = case when said.seq is null then t.last_said else said_text(said.type, said.payload) end,
        running_id = running.id, running_agent = running.agent, running_since = running.since,
        approvals = (select count(*) from approvals a where a.house_id = t.house_id and a.thread_id = t.id and a.state = 'open')
      from stale
        left join running on running.stream_id = stale.stream_id
        left join lateral (
          select seq, author_agent_id, type, payload from entries e
            where e.stream_id = stale.stream and e.seq > stale.seq - 200 and e.type in ('chat', 'command')
            order by seq desc limit 1
        ) said on true
      where t.id = stale.id and t.id in (select locked.id from locked) and (t.active_at < stale.ts or t.running_id = stale.ended)
  )
  select stale.stream from stale where stale.id not in (select locked.id from locked);
end $$;

-- repair_thread_activity touches up to p_most threads after an id, in the order of ids, and returns the last of them;
-- null at the end. It repairs touches that were lost because a server was killed.
create function repair_thread_activity(p_after text, p_most int) returns text
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  last text;
  streams bigint[];
begin
  select max(t.id), array_agg(s.id) into last, streams from (
    select id, house_id, stream_id from threads where id > p_after order by id limit p_most
  ) t join streams s on s.house_id = t.house_id and s.name = t.stream_id;
  perform touch_threads(streams);
  return last;
end $$;

revoke execute on function touch_threads, repair_thread_activity from public;
grant execute on function touch_threads, repair_thread_activity to arbe_app;

-- A run is one pass of the bot that drives a thread, identified by the thread and its run_epoch. There is no table of
-- runs: the log says what happened in each of them, and the row what is needed to decide about the last one. A sweep looks
-- at all running threads, whosever they are.
create index threads_running on threads (id) where status = 'running';
create function running_threads(p_after text, p_most int) returns table (id text, house_id text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id from public.threads t where t.status = 'running' and t.id > p_after order by t.id limit p_most
$$;
revoke execute on function running_threads from public;
grant execute on function running_threads to arbe_app;

-- What lists, pages and clients show of a thread, in one place. A migration that adds a column to threads creates the view again.
create view thread_heads with (security_invoker = true) as
select t.*, coalesce(e.seq, 0) as tail, coalesce(e.ts, t.created_at) as last_activity,
  coalesce((select a.name from agents a where a.id = t.last_said_by), '')::text as last_said_name,
  coalesce((select a.name from agents a where a.id = t.running_agent), '')::text as running_name
from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true;
comment on view thread_heads is 'Threads with the end of their logs and the names of who spoke last and who works there; empty if nobody does. It shows each role the threads that it may read.';
comment on column thread_heads.tail is 'The position of the last entry; 0 if there is none.';
comment on column thread_heads.last_activity is 'When the last entry was written; the thread''s creation if there is none.';
grant select on thread_heads to arbe_app;

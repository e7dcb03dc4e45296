-- What bots do: their turns, the approvals that they ask for, the files that they edit, and what they read of long threads.

create table turns (
  id              text primary key default generate_short_id(),
  house_id        text not null references houses (id) on delete cascade,
  thread_id       text not null,
  agent_id        uuid not null,
  entry_id        text not null,
  reason          text not null,
  policy_id       text,
  chain           int not null default 0 check (chain >= 0),
  status          text not null default 'queued' check (status in
    ('delayed', 'queued', 'running', 'asking', 'answered', 'failed', 'stopped', 'limited', 'silent', 'skipped')),
  due_at          timestamptz,
  asked           text[] not null default '{}',
  asked_seqs      bigint[] not null default '{}',
  steps           int not null default 0 check (steps >= 0),
  attempts        int not null default 0,
  stopped_by      uuid,
  created_at      timestamptz not null default now(),
  started_at      timestamptz,
  ended_at        timestamptz,
  deaths          int not null default 0 check (deaths >= 0),
  root            text not null default '',
  reserved_micros bigint not null default 0 check (reserved_micros >= 0),
  tools           text[],
  waits           int not null default 0 check (waits >= 0),
  tries           int not null default 0 check (tries >= 0),
  failing_since   timestamptz,
  failure         text not null default '',
  failure_kind    text not null default '',
  fallback        text not null default '',
  own_after       timestamptz,
  asks            int not null default 0 check (asks >= 0),
  asking_since    timestamptz,
  waited_ms       bigint not null default 0 check (waited_ms >= 0),
  asked_think     jsonb not null default '{}' check (jsonb_typeof(asked_think) = 'object'),
  constraint turns_ends check ((ended_at is null) = (status in ('delayed', 'queued', 'running', 'asking'))),
  constraint turns_are_due check (status not in ('delayed', 'asking') or due_at is not null),
  check (cardinality(asked) = cardinality(asked_seqs)),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table turns is 'A bot''s work on something that was said. What it did is in the thread''s log; this row says where it stands.';
comment on column turns.agent_id is 'The bot. It may have left the house since, so there is no reference to members.';
comment on column turns.entry_id is 'The entry that asked.';
comment on column turns.chain is 'How many turns of bots led to it, one by one, since a person spoke.';
comment on column turns.due_at is 'When a delayed turn decides whether it begins, when a turn that waits for its model''s provider asks again, and when one that asks people goes on without an answer.';
comment on column turns.asked is 'The ids of all entries that it answers, the first one included.';
comment on column turns.asked_seqs is 'The positions of those entries, in the same order: asked finds whether an entry is among them, asked_seqs where to read them.';
comment on column turns.steps is 'How many model calls are in the log. A step is written only by whoever moves this by one, so no step is written twice.';
comment on column turns.attempts is 'How many servers have begun to work on it.';
comment on column turns.deaths is 'How many servers began to work on the next step and have not come back from it: those that died, and the one that works on it.';
comment on column turns.root is 'The entry of a person from which the turn follows, however many bots were in between: thread/entry, or retry/id if a person had an answer tried again.';
comment on column turns.reserved_micros is 'What the call of a model that may be in progress counts against the money of the installation until it is known what it cost.';
comment on column turns.tools is 'The tools that the turn may use, of those that its bot has: those of all policies that passed it an entry; null for all.';
comment on column turns.waits is 'How often the next step was left and begun again because the model''s provider did not answer.';
comment on column turns.tries is 'How often the model was asked for the next step in vain.';
comment on column turns.failing_since is 'Since when its provider does not answer; null if it does.';
comment on column turns.failure is 'Why, in a few words; failure_kind says it in one.';
comment on column turns.fallback is 'The fallback model that the turn asks in place of its bot''s; empty for the bot''s.';
comment on column turns.own_after is 'Before when the provider of the bot''s own model does not want to be asked.';
comment on column turns.asks is 'How often its next step was left to wait for people. Those attempts were not in vain.';
comment on column turns.asking_since is 'Since when it waits for people, if it does.';
comment on column turns.waited_ms is 'How long it has waited for people, which is not a part of the time that it may take.';
comment on column turns.asked_think is 'How hard the model thinks for entries of asked, by their ids, as the people who wrote them said. One that is not there says nothing.';
-- One turn at a time for each bot in each thread.
create unique index turns_active on turns (house_id, thread_id, agent_id) where ended_at is null;
create index turns_by_thread on turns (house_id, thread_id, agent_id, created_at desc);
create index turns_by_root on turns (house_id, root);
create index turns_waiting on turns (house_id, thread_id) where status in ('queued', 'delayed');
create index turns_reserved on turns (house_id) where ended_at is null and reserved_micros > 0;

alter table turns enable row level security;
create policy tenant on turns to arbe_app using (house_id = current_house());
grant select, insert, update on turns to arbe_app;

-- A sweep looks in all houses for turns that no job would run. A turn that asks has a job that is due when its requests
-- expire. That job is too late if somebody has stopped the turn or closed the thread, and the server that did it was
-- killed before it said so to the queue.
create function active_turns(p_older interval)
  returns table (id text, house_id text, thread_id text, due_at timestamptz)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id, t.thread_id, case when not e.early then t.due_at end
    from public.turns t cross join lateral (
      select t.status = 'asking' and (t.stopped_by is not null or exists (
        select from public.threads th where th.house_id = t.house_id and th.id = t.thread_id and not public.thread_runs(th.status))) as early
    ) e
    where t.ended_at is null and t.created_at < now() - p_older and (e.early or coalesce(t.due_at, t.created_at) < now() - p_older)
$$;

-- How many turns wait to begin: in a thread, in its house, and in all houses of the person to whom the house belongs. It
-- counts no further than p_most.
create function waiting_turns(p_house text, p_thread text, p_most int) returns table (of_thread int, of_house int, of_person int)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select
    (select count(*)::int from (select from public.turns where house_id = p_house and thread_id = p_thread and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (select from public.turns where house_id = p_house and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (
      select from public.houses h join public.turns t on t.house_id = h.id and t.status in ('queued', 'delayed')
      where h.id = p_house or h.belongs_to = (select own.belongs_to from public.houses own where own.id = p_house) limit p_most) t)
$$;

revoke execute on function active_turns, waiting_turns from public;
grant execute on function active_turns, waiting_turns to arbe_app;

create table approvals (
  house_id    text not null,
  id          text not null,
  thread_id   text not null,
  turn_id     text not null references turns (id) on delete cascade,
  agent_id    uuid not null,
  call_id     text not null,
  tool        text not null,
  arguments   text not null check (octet_length(arguments) <= 262144),
  state       text not null default 'open' check (state in ('open', 'approved', 'denied', 'expired', 'withdrawn')),
  asked_at    timestamptz not null default now(),
  expires_at  timestamptz not null,
  answered_by uuid,
  answered_at timestamptz,
  reason      text not null default '' check (char_length(reason) <= 2000),
  primary key (house_id, id),
  unique (turn_id, call_id),
  check ((state = 'open') = (answered_at is null)),
  check ((state in ('approved', 'denied')) = (answered_by is not null)),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table approvals is 'Calls of tools for which bots need a person''s yes. Each change of a row is also an entry of the thread.';
comment on column approvals.id is 'Derived from the call, so that asking again is the same request.';
comment on column approvals.agent_id is 'The bot. It may have left the house since, so there is no reference to members.';
comment on column approvals.call_id is 'The id of the entry that will be the result of the call.';
comment on column approvals.arguments is 'What people see, and what runs if they say yes: a JSON object.';
comment on column approvals.answered_by is 'The person who answered. They may have left the house since.';
comment on column approvals.answered_at is 'When it was no longer open, whatever ended it.';
create index approvals_open on approvals (house_id, thread_id) where state = 'open';
create index on approvals (house_id, thread_id);

alter table approvals enable row level security;
-- Only a member who is a person answers, in their own name. What ends it otherwise names nobody.
create policy tenant on approvals to arbe_app using (house_id = current_house())
  with check (house_id = current_house() and (answered_by is null or answered_by = current_agent() and not bot_asks()
    and exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent())));
grant select, insert (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, expires_at),
  update (state, answered_by, answered_at, reason) on approvals to arbe_app;

create table file_edits (
  house_id  text not null references houses (id) on delete cascade,
  turn_id   text not null references turns (id) on delete cascade,
  call_id   text not null,
  step      text not null,
  path      text not null,
  before    bytea,
  after     bytea not null,
  result    jsonb not null,
  primary key (turn_id, call_id)
);
comment on table file_edits is 'What the calls of a turn''s step write to files, recorded before they do, so that a call that is repeated after its server died does not edit twice.';
comment on column file_edits.call_id is 'The entry of the call''s result.';
comment on column file_edits.step is 'The entry of the call''s step. Rows of earlier steps are deleted.';
comment on column file_edits.before is 'The SHA-256 of the file before; null if there was none.';
comment on column file_edits.after is 'The SHA-256 of the file after.';
alter table file_edits enable row level security;
create policy tenant on file_edits to arbe_app using (house_id = current_house());
grant select, insert, delete on file_edits to arbe_app;

-- What bots read of a thread that is too long to be read as a whole. It belongs to the thread, so that all its bots share it.

create table thread_summaries (
  house_id  text not null,
  thread_id text not null,
  version   int not null check (version > 0),
  begins    bigint not null check (begins > 0),
  summary   text not null,
  model     text not null,
  agent_id  uuid,
  unread    jsonb not null check (jsonb_typeof(unread) = 'array'),
  tail      bigint not null,
  made_at   timestamptz not null default now(),
  primary key (house_id, thread_id, version),
  check (tail >= begins),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table thread_summaries is 'Where bots begin to read a thread, and what stands for the entries before. The greatest version holds. A row never changes, and there is one row for each version, so whoever comes second uses the row of the first.';
comment on column thread_summaries.begins is 'The position of the first entry that bots read as it is.';
comment on column thread_summaries.summary is 'Stands for the entries before begins, apart from those that unread names. Empty if it stands for none.';
comment on column thread_summaries.model is 'The ref of the model that wrote the summary, and agent_id the bot for which it did. Empty and null if there is no summary.';
comment on column thread_summaries.unread is 'The spans of entries before begins that are in no summary: [{"from":1,"to":9,"since":"2026-01-02T03:04:05Z","until":"2026-01-02T03:04:05Z"}].';
comment on column thread_summaries.tail is 'The last entry that the model may have read. A fork of the thread at or after it begins with this row.';

alter table thread_summaries enable row level security;
create policy tenant on thread_summaries to arbe_app using (house_id = current_house());
grant select, insert on thread_summaries to arbe_app;

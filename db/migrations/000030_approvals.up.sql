-- What bots do only with a person's yes: the settings of bots and houses that say so, and the approvals that these ask for.

alter table bots add column ask text[] not null default '{}';
comment on column bots.ask is 'The names of the tools that it uses only with a person''s yes, besides those of the house.';
grant insert (ask), update (ask) on bots to arbe_app;

alter table houses add column ask text[] not null default '{}';
comment on column houses.ask is 'The names of the tools that every bot of the house uses only with a person''s yes.';

alter table turns
  drop constraint turns_status_check,
  drop constraint turns_check,
  drop constraint turns_check1,
  add constraint turns_status_check check (status in
    ('delayed', 'queued', 'running', 'asking', 'answered', 'failed', 'stopped', 'limited', 'silent', 'skipped')),
  add constraint turns_ends check ((ended_at is null) = (status in ('delayed', 'queued', 'running', 'asking'))),
  add constraint turns_are_due check (status not in ('delayed', 'asking') or due_at is not null),
  add column asks int not null default 0 check (asks >= 0),
  add column asking_since timestamptz,
  add column waited_ms bigint not null default 0 check (waited_ms >= 0);
comment on column turns.due_at is 'When a delayed turn decides whether it begins, and when one that asks goes on without an answer.';
comment on column turns.asks is 'How often its next step was left to wait for people. Those attempts were not in vain.';
comment on column turns.asking_since is 'Since when it waits for people, if it does.';
comment on column turns.waited_ms is 'How long it has waited for people, which is not a part of the time that it may take.';

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

-- A turn that asks has a job that is due when its requests expire. That job is too late if somebody has stopped the turn or
-- closed the thread, and the server that did it was killed before it said so to the queue.
create or replace function active_turns(p_older interval)
  returns table (id text, house_id text, thread_id text, due_at timestamptz)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id, t.thread_id, case when not e.early then t.due_at end
    from public.turns t cross join lateral (
      select t.status = 'asking' and (t.stopped_by is not null or exists (
        select from public.threads th where th.house_id = t.house_id and th.id = t.thread_id and not public.thread_runs(th.status))) as early
    ) e
    where t.ended_at is null and t.created_at < now() - p_older and (e.early or coalesce(t.due_at, t.created_at) < now() - p_older)
$$;

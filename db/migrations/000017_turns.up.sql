-- What bots do: their turns, and what these used.

create table turns (
  id         text primary key default generate_short_id(),
  house_id   text not null references houses (id) on delete cascade,
  thread_id  text not null,
  agent_id   uuid not null,
  entry_id   text not null,
  reason     text not null,
  policy_id  text,
  chain      int not null default 0 check (chain >= 0),
  status     text not null default 'queued' check (status in ('delayed', 'queued', 'running', 'answered', 'failed', 'stopped', 'limited', 'silent', 'skipped')),
  due_at     timestamptz,
  asked      text[] not null default '{}',
  asked_seqs bigint[] not null default '{}',
  steps      int not null default 0 check (steps >= 0),
  attempts   int not null default 0,
  stopped_by uuid,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  ended_at   timestamptz,
  check ((ended_at is null) = (status in ('delayed', 'queued', 'running'))),
  check (status <> 'delayed' or due_at is not null),
  check (cardinality(asked) = cardinality(asked_seqs)),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table turns is 'A bot''s work on something that was said. What it did is in the thread''s log; this row says where it stands.';
comment on column turns.agent_id is 'The bot. It may have left the house since, so there is no reference to members.';
comment on column turns.entry_id is 'The entry that asked.';
comment on column turns.chain is 'How many turns of bots led to it, one by one, since a person spoke.';
comment on column turns.due_at is 'When a delayed turn decides whether it begins.';
comment on column turns.asked is 'The ids of all entries that it answers, the first one included.';
comment on column turns.asked_seqs is 'The positions of those entries.';
comment on column turns.steps is 'How many model calls are in the log. A step is written only by whoever moves this by one, so no step is written twice.';
comment on column turns.attempts is 'How many servers have begun to work on it.';
-- One turn at a time for each bot in each thread.
create unique index turns_active on turns (house_id, thread_id, agent_id) where ended_at is null;
create index turns_by_thread on turns (house_id, thread_id, agent_id, created_at desc);

create table model_calls (
  house_id    text not null references houses (id) on delete cascade,
  thread_id   text not null,
  turn_id     text not null,
  id          text not null,
  agent_id    uuid not null,
  model       text not null,
  input       bigint not null,
  output      bigint not null,
  cache_read  bigint not null,
  cache_write bigint not null,
  cost_micros bigint not null check (cost_micros >= 0),
  cost_known  boolean not null,
  estimated   boolean not null,
  made_at     timestamptz not null default now(),
  primary key (turn_id, id)
);
comment on table model_calls is 'What each call of a model used. It outlives the thread, because the house''s limits count it.';
comment on column model_calls.id is 'The call within its turn.';
comment on column model_calls.cost_known is 'Whether the model''s price is known. Otherwise cost_micros is 0.';
comment on column model_calls.estimated is 'Whether a part of the tokens is an estimate, because the provider did not report them.';
create index model_calls_by_house on model_calls (house_id, made_at) include (thread_id, cost_micros);

alter table turns enable row level security;
create policy tenant on turns to arbe_app using (house_id = current_house());
grant select, insert, update on turns to arbe_app;
alter table model_calls enable row level security;
create policy tenant on model_calls to arbe_app using (house_id = current_house());
grant select, insert on model_calls to arbe_app;

-- A decision about new entries needs to know which bots the house has, and whether the thread is a direct message to one.
drop function undecided(bigint[]);
create function undecided(p_streams bigint[])
  returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, roster bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;
revoke execute on function undecided from public;
grant execute on function undecided to arbe_app;

-- A sweep looks in all houses for turns that no job would run.
create function active_turns(p_older interval)
  returns table (id text, house_id text, thread_id text, due_at timestamptz)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id, t.thread_id, t.due_at from public.turns t
    where t.ended_at is null and t.created_at < now() - p_older and coalesce(t.due_at, t.created_at) < now() - p_older
$$;
revoke execute on function active_turns from public;
grant execute on function active_turns to arbe_app;

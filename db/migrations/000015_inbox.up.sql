-- What each member has read (see members.read_from), and what needs them.

create table readings (
  house_id  text not null,
  agent_id  uuid not null,
  thread_id text not null,
  seq       bigint not null default 0 check (seq >= 0),
  muted     boolean not null default false,
  primary key (house_id, agent_id, thread_id),
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade,
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
) with (fillfactor = 50); -- so that an update stays in its page
comment on table readings is 'How far a member has read a thread. No row: they have not opened it since members.read_from.';
comment on column readings.seq is 'The last entry that they have seen, on any of their devices. It never goes back.';
comment on column readings.muted is 'The thread asks for them only when somebody mentions them.';
create index on readings (house_id, thread_id);
alter table readings enable row level security;
create policy tenant on readings to arbe_app using (house_id = (select current_house()))
  with check (house_id = (select current_house()) and agent_id = current_agent());
grant select, insert, update (seq, muted) on readings to arbe_app;
create trigger notify_change after insert or update or delete on readings
  for each row execute function notify_change('inbox', 'house_id', 'agent_id');

create table notices (
  house_id  text not null,
  agent_id  uuid not null,
  thread_id text not null,
  kind      text not null check (kind in ('mention', 'finished', 'failed')),
  first_seq bigint not null check (first_seq > 0),
  last_seq  bigint not null,
  at        timestamptz not null default now(),
  primary key (house_id, agent_id, thread_id, kind),
  foreign key (house_id, agent_id) references members (house_id, agent_id) on delete cascade,
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade,
  check (first_seq <= last_seq)
);
comment on table notices is 'What in a thread is for one member: they were mentioned, or work that they asked for has ended. One row of each kind for each thread, however often it happens. A row goes when its last entry is read.';
comment on column notices.first_seq is 'The first such entry that they had not read when it was written.';
create index on notices (house_id, thread_id);
alter table notices enable row level security;
create policy tenant on notices to arbe_app using (house_id = (select current_house()));
grant select, delete on notices to arbe_app;
create trigger notify_change after insert or update or delete on notices
  for each row execute function notify_change('inbox', 'house_id', 'agent_id');

-- notice tells people of a house about an entry of a thread. Those who have read it already, bots and strangers are left out.
-- Repeating it changes nothing.
create function notice(p_house text, p_thread text, p_agents uuid[], p_kind text, p_seq bigint) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into public.notices as n (house_id, agent_id, thread_id, kind, first_seq, last_seq)
  select m.house_id, m.agent_id, t.id, p_kind, p_seq, p_seq
    from public.members m
      join public.agents a on a.id = m.agent_id and a.kind = 'human'
      join public.threads t on t.house_id = m.house_id and t.id = p_thread
      left join public.readings r on r.house_id = m.house_id and r.agent_id = m.agent_id and r.thread_id = t.id
    where m.house_id = p_house and m.agent_id = any (p_agents) and coalesce(r.seq, 0) < p_seq
    order by m.agent_id
  on conflict (house_id, agent_id, thread_id, kind) do update set
    first_seq = case when n.last_seq <= coalesce((select r.seq from public.readings r
      where r.house_id = n.house_id and r.agent_id = n.agent_id and r.thread_id = n.thread_id), 0) then excluded.first_seq else n.first_seq end,
    last_seq = excluded.last_seq, at = excluded.at
    where n.last_seq < excluded.last_seq
$$;

-- add_notices is notice for the current house.
create function add_notices(p_thread text, p_agents uuid[], p_kind text, p_seq bigint) returns void
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select public.notice(public.current_house(), p_thread, p_agents, p_kind, p_seq)
$$;

-- end_of_thread returns the position of the last entry of a thread.
create function end_of_thread(p_house text, p_thread text) returns bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce((select max(e.seq) from public.entries e where e.stream_id = s.id), 0)
    from public.threads t join public.streams s on s.house_id = t.house_id and s.name = t.stream_id
    where t.house_id = p_house and t.id = p_thread
$$;

-- A turn that ends is news to the people whom it answers. It runs with the commit, after the entry that says so.
create function notice_turn() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  last bigint := public.end_of_thread(new.house_id, new.thread_id);
begin
  if last > 0 then
    perform public.notice(new.house_id, new.thread_id, array(
      select distinct e.author_agent_id from public.threads t
        join public.streams s on s.house_id = t.house_id and s.name = t.stream_id
        join public.entries e on e.stream_id = s.id and e.seq = any (new.asked_seqs)
        where t.house_id = new.house_id and t.id = new.thread_id and e.author_agent_id is not null
    ), case when new.status = 'answered' then 'finished' else 'failed' end, last);
  end if;
  return null;
end $$;
create constraint trigger notice_turn after update on turns deferrable initially deferred for each row
  when (old.ended_at is null and new.status in ('answered', 'failed', 'limited')) execute function notice_turn();

-- So is the end of a run to the person who delegated it.
create function notice_run() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  last bigint := public.end_of_thread(new.house_id, new.id);
begin
  if last > 0 then
    perform public.notice(new.house_id, new.id, array[new.asked_by], case when new.status = 'completed' then 'finished' else 'failed' end, last);
  end if;
  return null;
end $$;
create constraint trigger notice_run after update on threads deferrable initially deferred for each row
  when (old.status = 'running' and new.status in ('completed', 'failed') and new.asked_by is not null) execute function notice_run();

revoke execute on function notice, add_notices, end_of_thread, notice_turn, notice_run from public;
grant execute on function add_notices to arbe_app;

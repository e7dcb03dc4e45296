-- Dispatch: how far it has decided what work the entries of each thread ask for, and the servers, which may have left
-- some undecided.

create table decisions (
  stream_id bigint primary key,
  house_id  text not null,
  thread_id text not null,
  decided   bigint not null check (decided >= 0),
  unique (house_id, thread_id),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
) with (fillfactor = 50); -- so that an update stays in its page and changes no index
comment on table decisions is 'One row per thread: the cursor of dispatch over its log. It moves in the transaction that queues what was decided.';
comment on column decisions.decided is 'Each entry up to this position has had its decision. What a fork inherited was decided in its source.';
alter table decisions enable row level security;
create policy tenant on decisions to arbe_app using (house_id = current_house());
grant select, update (decided) on decisions to arbe_app;

create function begin_decisions() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into public.decisions (stream_id, house_id, thread_id, decided)
  select s.id, new.house_id, new.id, coalesce(s.fork_seq, 0)
    from public.streams s where s.house_id = new.house_id and s.name = new.stream_id;
  return null;
end $$;
create trigger begin_decisions after insert on threads
  for each row execute function begin_decisions();
revoke execute on function begin_decisions from public;

-- Returns the threads among these streams whose entries wait for a decision: those after decided, up to tail; with what a
-- decision needs to know: the bot to which the thread is a direct message, the one that drives it, because what is said
-- there is said to its coding agent, and which bots the house has. A server asks for streams of any house at once, and
-- learns nothing but that.
create function undecided(p_streams bigint[])
returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, driver text, roster bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, th.agent_id::text, h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;

-- Returns the next such streams of all threads after an id, in the order of ids. It looks at every thread, so it is
-- used only when a server starts or has died.
create function undecided_after(p_after bigint, p_most int) returns table (stream_id bigint, house_id text, stream text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, s.name
    from public.decisions d join public.streams s on s.id = d.stream_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id > p_after and t.tail > d.decided
    order by d.stream_id limit p_most
$$;

-- chats_between returns what agents said in a stream of the current house after a position and up to another one, at most
-- p_most chats. With p_handles it leaves out those that certainly mention none of them. Most of a long log ask for nothing, so
-- it skips them here and not in the server. It is an ordered walk through the index, whatever row counts the planner expects.
create function chats_between(p_stream bigint, p_behind bigint, p_upto bigint, p_handles text[], p_most int)
  returns table (seq bigint, id text, author text, payload json, ts timestamptz)
  language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  select e.seq, e.id, e.author_agent_id::text, e.payload, e.ts from public.entries e
    where e.stream_id = p_stream and e.seq > p_behind and e.seq <= p_upto and e.type = 'chat' and e.author_agent_id is not null
      -- A handle is ASCII, in any case. JSON has its characters as they are, or escaped as \u00...
      and (p_handles is null or e.payload::text like '%\\u00%' or e.payload::text like '%@%' and lower(e.payload::text collate "C")
        like any (array(select '%@' || h || '%' from unnest(p_handles) h)))
    order by e.seq limit p_most
$$;

-- decide_idle moves the cursors of streams of any house over entries that ask for no work: those after p_from up to
-- p_to. Where another server has decided some of them, it moves the cursor over the rest. It locks in the order of ids,
-- so that two servers cannot deadlock.
create function decide_idle(p_streams bigint[], p_from bigint[], p_to bigint[]) returns void
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if public.current_house() is not null then
    raise exception 'cursors of many houses are not moved in the name of one' using errcode = 'insufficient_privilege';
  end if;
  perform from public.decisions d where d.stream_id = any (p_streams) order by d.stream_id for no key update;
  update public.decisions d set decided = m.upto
    from unnest(p_streams, p_from, p_to) m (stream_id, behind, upto)
    where d.stream_id = m.stream_id and d.decided >= m.behind and d.decided < m.upto;
end $$;

revoke execute on function undecided, undecided_after, chats_between, decide_idle from public;
grant execute on function undecided, undecided_after, chats_between, decide_idle to arbe_app;

create table servers (
  key     bigint primary key,
  dead_at timestamptz
);
comment on table servers is 'The servers that are running, or did not stop regularly: some entries that they accepted may wait for a decision.';
comment on column servers.key is 'The advisory lock that the server holds while it runs.';
comment on column servers.dead_at is 'When its lock was found free and its entries were looked for.';
alter table servers enable row level security;
create policy servers on servers to arbe_app using (current_house() is null);
grant select, insert, update, delete on servers to arbe_app;

-- What one server asks another one, which alone can answer it. Servers share only the database: none needs to know the
-- address of another one, or to reach it.
create unlogged table server_calls ( -- a call that is lost with a crash of the database is made again
  id       uuid primary key,
  house_id text not null references houses (id) on delete cascade,
  question bytea not null,
  answer   bytea,
  asked_at timestamptz not null default now()
);
comment on table server_calls is 'Calls in progress from one server to another one. The caller deletes its row; a notification tells each side when to look.';
comment on column server_calls.answer is 'Null until the call is answered.';
-- Compressing them takes longer than it saves, because a row lives for seconds.
alter table server_calls alter column question set storage external;
alter table server_calls alter column answer set storage external;
alter table server_calls enable row level security;
create policy tenant on server_calls to arbe_app using (house_id = current_house());
grant select, delete, insert (id, house_id, question), update (answer) on server_calls to arbe_app;

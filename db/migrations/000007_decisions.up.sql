-- How far dispatch has decided what work the entries of each thread ask for, and which servers may have left some
-- undecided.

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

-- Returns the threads among these streams whose entries wait for a decision: those after decided, up to tail. A server
-- asks for streams of any house at once, and learns nothing but positions.
create function undecided(p_streams bigint[]) returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail
    from public.decisions d,
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

revoke execute on function begin_decisions, undecided, undecided_after, decide_idle from public;
grant execute on function undecided, undecided_after, decide_idle to arbe_app;

-- Spending is counted per tree of threads and per member of a house, because both have limits.

-- Returns the thread above a thread and all its parents; the thread itself if a person created it.
create function tree_of(p_thread text) returns text
  language plpgsql stable set search_path = public, pg_temp as $$
begin
  return coalesce((
    with recursive above as (
      select t.id, t.parent_thread_id, 1 as depth from threads t where t.id = p_thread
      union all
      select t.id, t.parent_thread_id, a.depth + 1 from above a join threads t on t.id = a.parent_thread_id where a.depth < 100
    )
    select a.id from above a order by a.depth desc limit 1), p_thread);
end $$;
revoke all on function tree_of(text) from public;
grant execute on function tree_of(text) to arbe_app;

-- Returns the person from whom work follows, by its root: the author of an entry, or whoever asked a coding agent for the run. Null
-- if the root is not a person's, or was deleted.
create function person_of_root(p_root text) returns uuid
  language plpgsql stable set search_path = public, pg_temp as $$
begin
  return (select a.id from threads t
    left join streams s on s.house_id = t.house_id and s.name = t.stream_id
    left join entries e on e.stream_id = s.id and e.id = substr(p_root, strpos(p_root, '/') + 1)
    join agents a on a.id = coalesce(e.author_agent_id, case when split_part(p_root, '/', 2) = 'run-' || t.run_epoch then t.asked_by end) and a.kind = 'human'
    where t.id = split_part(p_root, '/', 1));
end $$;
revoke all on function person_of_root(text) from public;
grant execute on function person_of_root(text) to arbe_app;

alter table spending add tree_id text;
update spending set tree_id = tree_of(thread_id);
alter table spending alter tree_id set not null;
comment on column spending.tree_id is 'The thread above the thread and all its parents, see tree_of. It is the thread itself if that was deleted before.';

-- A trigger sets it, because servers of the version before this migration add rows too.
create function set_tree() returns trigger
  language plpgsql set search_path = public, pg_temp as $$
begin
  new.tree_id := tree_of(new.thread_id);
  return new;
end $$;
revoke all on function set_tree() from public;
create trigger set_tree before insert on spending for each row execute function set_tree();

create table member_spending (
  house_id text not null references houses (id) on delete cascade,
  day      date not null,
  agent_id uuid not null references agents (id) on delete cascade,
  micros   bigint not null default 0 check (micros >= 0),
  primary key (house_id, day, agent_id)
);
comment on table member_spending is 'What follows from the messages of a person cost in a house and a day (UTC), in millionths of a US dollar: a part of spending.';
alter table member_spending enable row level security;
create policy tenant on member_spending to arbe_app using (house_id = current_house());
grant select, insert, update on member_spending to arbe_app;

-- Adds the cost of a call of a model to the day's spending of its thread and of the person from whom it follows.
create function add_spending(p_house text, p_thread text, p_root text, p_day date, p_charged bigint, p_own bigint, p_unknown boolean) returns void
  language plpgsql set search_path = public, pg_temp as $$
declare
  person uuid := person_of_root(p_root);
begin
  insert into spending as s (house_id, day, thread_id, charged_micros, own_micros, cost_unknown, calls)
    values (p_house, p_day, p_thread, p_charged, p_own, p_unknown, 1)
    on conflict (house_id, day, thread_id) do update set charged_micros = s.charged_micros + excluded.charged_micros,
      own_micros = s.own_micros + excluded.own_micros, cost_unknown = s.cost_unknown or excluded.cost_unknown, calls = s.calls + 1;
  if person is not null and p_charged + p_own > 0 then
    insert into member_spending as m (house_id, day, agent_id, micros) values (p_house, p_day, person, p_charged + p_own)
      on conflict (house_id, day, agent_id) do update set micros = m.micros + excluded.micros;
  end if;
end $$;
revoke all on function add_spending(text, text, text, date, bigint, bigint, boolean) from public;
grant execute on function add_spending(text, text, text, date, bigint, bigint, boolean) to arbe_app;

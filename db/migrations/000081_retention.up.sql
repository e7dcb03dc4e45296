-- A house can have its old threads and artifacts deleted.

alter table houses
  add column keep_threads_days integer not null default 0 check (keep_threads_days between 0 and 3650),
  add column keep_artifacts_days integer not null default 0 check (keep_artifacts_days between 0 and 3650);
comment on column houses.keep_threads_days is 'Threads without activity for as many days are deleted; 0 if they are kept.';
comment on column houses.keep_artifacts_days is 'Artifacts are deleted when they are as many days old; 0 if they are kept.';
drop trigger audit on houses;
create trigger audit after insert or update or delete on houses for each row
  execute function audit_change('house', 'id', 'name', '{created_at,roster,belongs_to,primary_thread_id}',
    '{name,default_environment_id,default_model,limits,fallback_models,ask,keep_threads_days,keep_artifacts_days}');

create table expired (
  kind     text not null check (kind in ('thread', 'artifact')),
  id       text not null,
  house_id text not null references houses (id) on delete cascade,
  days     integer not null,
  at       timestamptz not null default now(),
  primary key (kind, id)
);
comment on table expired is 'What the retention of a house deleted, so that links to it say so.';
comment on column expired.days is 'How many days it was kept.';
create index on expired (house_id);
alter table expired enable row level security;
create policy tenant on expired to arbe_app using (house_id = current_house());
-- A link names no house, so whoever follows it looks in all of theirs.
create policy own on expired for select to arbe_app using (current_house() is null
  and exists (select from members m where m.house_id = expired.house_id and m.agent_id = current_agent()));
grant select, insert on expired to arbe_app;

-- Returns the trees of threads of a house in which nothing happened since p_before: their roots, and how many threads each has.
-- The house's own thread, and trees in which something is pinned, runs or waits for an answer, are not among them.
create function stale_threads(p_house text, p_before timestamptz) returns table (id text, threads bigint)
  language sql stable begin atomic
  select r.id, tree.threads from threads r
  join houses h on h.id = r.house_id
  cross join lateral (
    with recursive below as (
      select r.id, r.active_at, r.pinned_at, r.running_id, r.status, r.approvals
      union all
      select c.id, c.active_at, c.pinned_at, c.running_id, c.status, c.approvals from threads c join below b on c.parent_thread_id = b.id
    )
    select count(*) as threads, bool_and(b.active_at < p_before and b.pinned_at is null and b.running_id is null and b.status <> 'running'
      and b.approvals = 0 and b.id is distinct from h.primary_thread_id) as stale
    from below b
  ) tree
  where r.house_id = p_house and r.parent_thread_id is null and r.active_at < p_before and r.pinned_at is null and tree.stale;
end;
revoke execute on function stale_threads from public;
grant execute on function stale_threads to arbe_app;

-- Returns the artifacts of a house that are older than p_before. The saved files of sandboxes are not among them: they are the files
-- of a thread, and end with it.
create function stale_artifacts(p_house text, p_before timestamptz) returns table (id text, size bigint)
  language sql stable begin atomic
  select a.id, coalesce(b.size, 0) from artifacts a
  left join blobs b on b.id = a.blob_id
  where a.house_id = p_house and a.created_at < p_before
    and not exists (select from sandbox_trees t where t.house_id = p_house and t.saved @> jsonb_build_array(jsonb_build_object('artifact', a.id)));
end;
revoke execute on function stale_artifacts from public;
grant execute on function stale_artifacts to arbe_app;

-- Returns the houses that have anything deleted. It acts as the owner, because a sweep is in no house.
create index houses_with_retention on houses (id) where keep_threads_days > 0 or keep_artifacts_days > 0;
create function houses_with_retention() returns setof text
  language sql stable security definer set search_path = public, pg_temp set enable_seqscan = off as $$
  select id from houses where keep_threads_days > 0 or keep_artifacts_days > 0
$$;
revoke execute on function houses_with_retention from public;
grant execute on function houses_with_retention to arbe_app;

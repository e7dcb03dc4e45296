-- Retention by size: what is oldest is deleted until the rest is small enough.
alter table houses
  add column keep_threads_mb integer not null default 0 check (keep_threads_mb >= 0),
  add column keep_artifacts_mb integer not null default 0 check (keep_artifacts_mb >= 0);
comment on column houses.keep_threads_mb is 'The oldest threads are deleted until the logs of all have no more MiB; 0 if they are kept.';
comment on column houses.keep_artifacts_mb is 'The oldest artifacts are deleted until all have no more MiB; 0 if they are kept.';
comment on column expired.days is 'How many days it was kept; 0 if it was deleted because of the size of all.';
drop trigger audit on houses;
create trigger audit after insert or update or delete on houses for each row
  execute function audit_change('house', 'id', 'name', '{created_at,roster,belongs_to,primary_thread_id}',
    '{name,default_environment_id,default_model,limits,fallback_models,ask,keep_threads_days,keep_artifacts_days,keep_threads_mb,keep_artifacts_mb}');

-- Returns the artifacts of a house that are too much, so that the newer ones have at most p_bytes. The saved files of sandboxes
-- count, and are not among them. With p_bytes 0 it returns none.
create function excess_artifacts(p_house text, p_bytes bigint) returns table (id text, size bigint)
  language sql stable begin atomic
  select x.id, x.size from (
    select s.*, sum(s.size) over (order by s.saved desc, s.created_at desc, s.id) as upto from (
      select a.id, a.created_at, coalesce(b.size, 0) as size,
        a.id in (select f->>'artifact' from sandbox_trees t, jsonb_array_elements(t.saved) f where t.house_id = p_house and f ? 'artifact') as saved
      from artifacts a left join blobs b on b.id = a.blob_id where a.house_id = p_house) s) x
  where p_bytes > 0 and not x.saved and x.upto > p_bytes;
end;
revoke execute on function excess_artifacts from public;
grant execute on function excess_artifacts to arbe_app;

-- Returns the trees of threads of a house that are too much, so that the logs of the ones with later activity have at most
-- p_bytes: their roots, when something happened there last, how many threads each has, and their bytes. The house's own thread,
-- and trees in which something is pinned, runs or waits for an answer, or happened since p_before, count and are not among them.
-- With p_bytes 0 it returns none.
create function excess_threads(p_house text, p_before timestamptz, p_bytes bigint) returns table (id text, active_at timestamptz, threads bigint, bytes bigint)
  language sql stable begin atomic
  with recursive below as (
    select t.id as top, t.id, t.stream_id, t.active_at, t.pinned_at, t.running_id, t.status, t.approvals
    from threads t where t.house_id = p_house and t.parent_thread_id is null
    union all
    select b.top, c.id, c.stream_id, c.active_at, c.pinned_at, c.running_id, c.status, c.approvals
    from threads c join below b on c.parent_thread_id = b.id
  ), tree as (
    select b.top, max(b.active_at) as active_at, count(*) as threads, coalesce(sum(l.bytes), 0)::bigint as bytes,
      bool_and(b.active_at < p_before and b.pinned_at is null and b.running_id is null and b.status <> 'running'
        and b.approvals = 0 and b.id is distinct from h.primary_thread_id) as quiet
    from below b
    join houses h on h.id = p_house
    left join streams s on s.house_id = p_house and s.name = b.stream_id
    left join log_sizes l on l.stream_id = s.id
    group by b.top
  ), counted as (
    select tree.*, sum(tree.bytes) over (order by tree.quiet, tree.active_at desc, tree.top) as upto from tree
  )
  select c.top, c.active_at, c.threads, c.bytes from counted c where p_bytes > 0 and c.quiet and c.bytes > 0 and c.upto > p_bytes;
end;
revoke execute on function excess_threads from public;
grant execute on function excess_threads to arbe_app;

-- Counts what would be deleted: what is older than the times, and what is too much. With -infinity and 0 it is nothing.
create function would_expire(p_house text, p_threads_before timestamptz, p_artifacts_before timestamptz, p_quiet_before timestamptz,
    p_threads_bytes bigint, p_artifacts_bytes bigint, out threads bigint, out artifacts bigint, out bytes bigint)
  language sql stable begin atomic
  select
    (select coalesce(sum(t.threads), 0) from (
      select s.id, s.threads from stale_threads(p_house, p_threads_before) s
      union select e.id, e.threads from excess_threads(p_house, p_quiet_before, p_threads_bytes) e) t)::bigint,
    count(*), coalesce(sum(a.size), 0)::bigint
  from (
    select s.id, s.size from stale_artifacts(p_house, p_artifacts_before) s
    union select e.id, e.size from excess_artifacts(p_house, p_artifacts_bytes) e) a;
end;
revoke execute on function would_expire from public;
grant execute on function would_expire to arbe_app;

drop index houses_with_retention;
create index houses_with_retention on houses (id)
  where keep_threads_days > 0 or keep_artifacts_days > 0 or keep_threads_mb > 0 or keep_artifacts_mb > 0;
create or replace function houses_with_retention() returns setof text
  language sql stable security definer set search_path = public, pg_temp set enable_seqscan = off as $$
  select id from houses where keep_threads_days > 0 or keep_artifacts_days > 0 or keep_threads_mb > 0 or keep_artifacts_mb > 0
$$;

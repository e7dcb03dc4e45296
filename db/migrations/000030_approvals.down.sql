create or replace function active_turns(p_older interval)
  returns table (id text, house_id text, thread_id text, due_at timestamptz)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.house_id, t.thread_id, t.due_at from public.turns t
    where t.ended_at is null and t.created_at < now() - p_older and coalesce(t.due_at, t.created_at) < now() - p_older
$$;
drop table approvals;
update turns set status = 'queued', due_at = null where status = 'asking';
alter table turns
  drop constraint turns_status_check,
  drop constraint turns_ends,
  drop constraint turns_are_due,
  add constraint turns_status_check check (status in ('delayed', 'queued', 'running', 'answered', 'failed', 'stopped', 'limited', 'silent', 'skipped')),
  add constraint turns_check check ((ended_at is null) = (status in ('delayed', 'queued', 'running'))),
  add constraint turns_check1 check (status <> 'delayed' or due_at is not null),
  drop column asks,
  drop column asking_since,
  drop column waited_ms;
alter table houses drop column ask;
alter table bots drop column ask;

create or replace function houses_with_retention() returns setof text
  language sql stable security definer set search_path = public, pg_temp set enable_seqscan = off as $$
  select id from houses where keep_threads_days > 0 or keep_artifacts_days > 0
$$;
drop index houses_with_retention;
create index houses_with_retention on houses (id) where keep_threads_days > 0 or keep_artifacts_days > 0;
drop function would_expire;
drop function excess_threads;
drop function excess_artifacts;
drop trigger audit on houses;
create trigger audit after insert or update or delete on houses for each row
  execute function audit_change('house', 'id', 'name', '{created_at,roster,belongs_to,primary_thread_id}',
    '{name,default_environment_id,default_model,limits,fallback_models,ask,keep_threads_days,keep_artifacts_days}');
comment on column expired.days is 'How many days it was kept.';
alter table houses drop column keep_threads_mb, drop column keep_artifacts_mb;

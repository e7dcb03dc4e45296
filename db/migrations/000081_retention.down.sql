drop function houses_with_retention;
drop function stale_artifacts;
drop function stale_threads;
drop table expired;
drop trigger audit on houses;
create trigger audit after insert or update or delete on houses for each row
  execute function audit_change('house', 'id', 'name', '{created_at,roster,belongs_to,primary_thread_id}', '{name,default_environment_id,default_model,limits,fallback_models,ask}');
alter table houses drop column keep_threads_days, drop column keep_artifacts_days;

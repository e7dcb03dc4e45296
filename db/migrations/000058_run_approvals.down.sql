delete from approvals where turn_id is null;
drop index approvals_of_runs;
alter table approvals
  drop constraint approvals_by_turn_or_run,
  drop column epoch,
  drop column question,
  alter column turn_id set not null;

alter table turns drop column waits, drop column tries, drop column failing_since, drop column failure, drop column failure_kind;
comment on column turns.due_at is null;

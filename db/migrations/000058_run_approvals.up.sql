-- Coding agents ask people, too: for a yes to use a tool, and questions. Who asks is a turn, or a run of a thread.

alter table approvals
  alter column turn_id drop not null,
  add column epoch bigint check (epoch > 0),
  add column question boolean not null default false,
  add constraint approvals_by_turn_or_run check ((turn_id is null) <> (epoch is null));
comment on table approvals is 'Calls of tools for which bots need a person''s yes, and questions of coding agents. Each change of a row is also an entry of the thread.';
comment on column approvals.epoch is 'Which run of the thread asks, if no turn does.';
comment on column approvals.question is 'The call is a question, whose answer is the words to a yes.';
create index approvals_of_runs on approvals (house_id, thread_id, epoch) where epoch is not null;
grant insert (epoch, question) on approvals to arbe_app;

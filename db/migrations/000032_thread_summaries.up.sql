-- What bots read of a thread that is too long to be read as a whole. It belongs to the thread, so that all its bots share it.

create table thread_summaries (
  house_id  text not null,
  thread_id text not null,
  version   int not null check (version > 0),
  begins    bigint not null check (begins > 0),
  summary   text not null,
  model     text not null,
  agent_id  uuid,
  unread    jsonb not null check (jsonb_typeof(unread) = 'array'),
  tail      bigint not null,
  made_at   timestamptz not null default now(),
  primary key (house_id, thread_id, version),
  check (tail >= begins),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade
);
comment on table thread_summaries is 'Where bots begin to read a thread, and what stands for the entries before. The greatest version holds. A row never changes, and there is one row for each version, so whoever comes second uses the row of the first.';
comment on column thread_summaries.begins is 'The position of the first entry that bots read as it is.';
comment on column thread_summaries.summary is 'Stands for the entries before begins, apart from those that unread names. Empty if it stands for none.';
comment on column thread_summaries.model is 'The ref of the model that wrote the summary, and agent_id the bot for which it did. Empty and null if there is no summary.';
comment on column thread_summaries.unread is 'The spans of entries before begins that are in no summary: [{"from":1,"to":9,"since":"2026-01-02T03:04:05Z","until":"2026-01-02T03:04:05Z"}].';
comment on column thread_summaries.tail is 'The last entry that the model may have read. A fork of the thread at or after it begins with this row.';

alter table thread_summaries enable row level security;
create policy tenant on thread_summaries to arbe_app using (house_id = current_house());
grant select, insert on thread_summaries to arbe_app;

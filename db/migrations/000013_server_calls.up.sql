-- What one server asks another one, which alone can answer it. Servers share only the database: none needs to know the
-- address of another one, or to reach it.

create unlogged table server_calls ( -- a call that is lost with a crash of the database is made again
  id       uuid primary key,
  house_id text not null references houses (id) on delete cascade,
  question bytea not null,
  answer   bytea,
  asked_at timestamptz not null default now()
);
comment on table server_calls is 'Calls in progress from one server to another one. The caller deletes its row; a notification tells each side when to look.';
comment on column server_calls.answer is 'Null until the call is answered.';
-- Compressing them takes longer than it saves, because a row lives for seconds.
alter table server_calls alter column question set storage external;
alter table server_calls alter column answer set storage external;

alter table server_calls enable row level security;
create policy tenant on server_calls to arbe_app using (house_id = current_house());
grant select, delete, insert (id, house_id, question), update (answer) on server_calls to arbe_app;

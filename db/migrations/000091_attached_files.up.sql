-- Files that are attached to messages of a thread are also in its sandbox.

create table attached_files (
  house_id    text not null,
  thread_id   text not null,
  artifact_id text not null,
  attached_at timestamptz not null default now(),
  primary key (thread_id, artifact_id),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete cascade,
  foreign key (house_id, artifact_id) references artifacts (house_id, id) on delete cascade
);
comment on table attached_files is 'The artifacts that messages of a thread name as their files.';
create index on attached_files (house_id, artifact_id);
alter table attached_files enable row level security;
create policy tenant on attached_files to arbe_app using (house_id = (select current_house()));
grant select, insert on attached_files to arbe_app;

create table placed_files (
  house_id    text not null,
  sandbox_id  text not null,
  artifact_id text not null,
  placed_at   timestamptz not null default now(),
  primary key (sandbox_id, artifact_id),
  foreign key (house_id, sandbox_id) references sandboxes (house_id, id) on delete cascade,
  foreign key (house_id, artifact_id) references artifacts (house_id, id) on delete cascade
);
comment on table placed_files is 'The attached files that were written to a sandbox. People and programs there may have deleted them since.';
create index on placed_files (house_id, artifact_id);
alter table placed_files enable row level security;
create policy tenant on placed_files to arbe_app using (house_id = (select current_house()));
grant select, insert on placed_files to arbe_app;

-- Of earlier messages only the files of the thread itself are found. Those are nearly all.
insert into attached_files (house_id, thread_id, artifact_id, attached_at)
select house_id, thread_id, id, created_at from artifacts where thread_id is not null and kind = 'file' and blob_id is not null and agent_id is not null and run_id is null;

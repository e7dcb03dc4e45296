create table file_edits (
  house_id  text not null references houses (id) on delete cascade,
  turn_id   text not null references turns (id) on delete cascade,
  call_id   text not null,
  step      text not null,
  path      text not null,
  before    bytea,
  after     bytea not null,
  result    jsonb not null,
  primary key (turn_id, call_id)
);
comment on table file_edits is 'What the calls of a turn''s step write to files, recorded before they do, so that a call that is repeated after its server died does not edit twice.';
comment on column file_edits.call_id is 'The entry of the call''s result.';
comment on column file_edits.step is 'The entry of the call''s step. Rows of earlier steps are deleted.';
comment on column file_edits.before is 'The SHA-256 of the file before; null if there was none.';
comment on column file_edits.after is 'The SHA-256 of the file after.';
alter table file_edits enable row level security;
create policy tenant on file_edits to arbe_app using (house_id = current_house());
grant select, insert, delete on file_edits to arbe_app;

-- Bots that run commands can do all this already.
update bots set tools = tools || '{read_file,write_file,edit_file,search_files}' where 'run_command' = any (tools) and not 'read_file' = any (tools);

-- Artifacts: bytes and references that outlive the sandbox they come from (seed 004).

-- A blob is a sequence of bytes in the blob store. Its row is inserted before its bytes are written and deleted before
-- they are, so bytes always have a row that leads to their deletion. A key is never reused, so bytes that are about to
-- be deleted cannot belong to a later upload.
create table blobs (
  id         text primary key default generate_short_id(),
  house_id   text not null references houses (id) on delete cascade,
  sha256     bytea check (octet_length(sha256) = 32),
  size       bigint check (size >= 0),
  created_at timestamptz not null default now(),
  unique (house_id, id),
  unique (house_id, sha256),
  check ((sha256 is null) = (size is null))
);
comment on table blobs is 'The content of artifacts. There is one row per content and house, so that no house can find out what another one has.';
comment on column blobs.id is 'Together with the house, the key of the bytes in the blob store.';
comment on column blobs.sha256 is 'The SHA-256 of the bytes; null while they are uploaded.';
alter table blobs enable row level security;
create policy tenant on blobs to arbe_app using (house_id = current_house());
grant select, insert (house_id), update (sha256, size) on blobs to arbe_app;

-- The bytes to delete from the blob store. The rows belong to no house, because they outlive their houses.
create table blob_garbage (
  house_id_of_key text not null,
  id              text not null,
  due_at          timestamptz not null,
  primary key (house_id_of_key, id)
);
comment on table blob_garbage is 'Keys of the blob store to whose bytes nothing refers.';
comment on column blob_garbage.due_at is 'An upload may still write under its key. It has ended by this time.';
create index on blob_garbage (due_at);

create function discard_blob() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  insert into blob_garbage (house_id_of_key, id, due_at)
    values (old.house_id, old.id, case when old.sha256 is null then old.created_at + interval '2 hours' else now() end)
    on conflict do nothing;
  return null;
end $$;
create trigger discard after delete on blobs for each row execute function discard_blob();

create table artifacts (
  id          text primary key default generate_short_id(),
  house_id    text not null references houses (id) on delete cascade,
  kind        text not null check (kind <> ''),
  label       text,
  external_id text,
  mime_type   text,
  byte_ref    text,
  blob_id     text,
  agent_id    uuid references agents (id) on delete set null,
  thread_id   text,
  stream_id   bigint,
  run_id      text,
  resource_id text,
  metadata    jsonb not null default '{}' check (jsonb_typeof(metadata) = 'object'),
  created_at  timestamptz not null default now(),
  unique (house_id, id),
  check (num_nonnulls(byte_ref, blob_id) <= 1),
  foreign key (house_id, blob_id) references blobs (house_id, id),
  foreign key (house_id, thread_id) references threads (house_id, id) on delete set null (thread_id),
  foreign key (house_id, stream_id) references streams (house_id, id) on delete cascade
);
comment on table artifacts is 'What work produced and what outlives its sandbox: files, output, screenshots, links, commits.';
comment on column artifacts.kind is 'message, file, url, commit, screenshot, log-ref, output, or any other word.';
comment on column artifacts.external_id is 'Its id elsewhere: of an entry, a pull request''s URL, a commit.';
comment on column artifacts.byte_ref is 'Where the bytes are if arbe does not store them: a git ref, an offset of a stream.';
comment on column artifacts.blob_id is 'The bytes, if arbe stores them.';
comment on column artifacts.agent_id is 'Who created it; null for arbe itself.';
comment on column artifacts.thread_id is 'The thread that produced it; null for none, or after the thread was deleted.';
comment on column artifacts.stream_id is 'The log of that thread. The artifact is deleted with the log, which forks of the thread keep.';
create index on artifacts (house_id, created_at, id);
create index on artifacts (stream_id, created_at, id);
create index on artifacts (thread_id) where thread_id is not null;
create index on artifacts (blob_id);
create index on artifacts (agent_id);
-- Artifacts are found by the beginning of their ids, whatever the collation of the database, and by their labels, the
-- newest first, because many can have the same label.
create index artifacts_by_prefix on artifacts (house_id, id text_pattern_ops);
create index artifacts_by_label on artifacts (house_id, label, created_at, id) where label is not null;
alter table artifacts enable row level security;
create policy tenant on artifacts to arbe_app using (house_id = current_house());
grant select, insert, delete on artifacts to arbe_app;

-- The bytes themselves, if the blob store is this database.
create table blob_chunks (
  house_id text not null references houses (id) on delete cascade,
  blob_id  text not null,
  start    bigint not null check (start >= 0),
  data     bytea not null,
  primary key (house_id, blob_id, start)
);
comment on table blob_chunks is 'Pieces of blobs with their positions, if the blob store is Postgres.';
alter table blob_chunks alter column data set storage external; -- mostly compressed already, and read in parts
alter table blob_chunks enable row level security;
create policy tenant on blob_chunks to arbe_app using (house_id = current_house());
grant select, insert, delete on blob_chunks to arbe_app;

-- discard_upload deletes the row of a finished upload of the current house, so that its bytes are deleted at once, and
-- returns whether there was one. It does not delete an upload that is the content of an artifact by now.
create function discard_upload(p_id text) returns boolean language plpgsql volatile security definer
  set search_path = public, pg_temp as $$
begin
  delete from blobs where id = p_id and house_id = current_house() and sha256 is null;
  if found then
    update blob_garbage set due_at = now() where house_id_of_key = current_house() and id = p_id;
    return true;
  end if;
  return false;
end $$;

-- collect_blobs deletes the rows of blobs of all houses to which no artifact refers, and of uploads that did not end
-- within two hours. An artifact that is being created locks its blob, which is then skipped. The second statement sees
-- what was created while the function waited.
create function collect_blobs() returns void language plpgsql volatile security definer
  set search_path = public, pg_temp as $$
declare unused text[];
begin
  select array_agg(id) into unused from (
    select b.id from blobs b
      where case when b.sha256 is null then b.created_at < now() - interval '2 hours'
        else not exists (select from artifacts a where a.blob_id = b.id) end
      limit 10000 for update skip locked) b;
  delete from blobs b where b.id = any (unused) and not exists (select from artifacts a where a.blob_id = b.id);
end $$;

-- due_blobs returns keys whose bytes must be deleted now. forget_blob removes a key whose bytes are gone.
create function due_blobs(p_most int) returns table (house_id text, id text)
  language sql stable security definer set search_path = public, pg_temp as $$
  select house_id_of_key, id from blob_garbage where due_at <= now() order by due_at limit p_most
$$;
create function forget_blob(p_house text, p_id text) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  delete from blob_garbage where house_id_of_key = p_house and id = p_id and due_at <= now()
$$;

revoke execute on function discard_blob, discard_upload, collect_blobs, due_blobs, forget_blob from public;
grant execute on function discard_upload, collect_blobs, due_blobs, forget_blob to arbe_app;

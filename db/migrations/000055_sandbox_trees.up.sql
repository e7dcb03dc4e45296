-- The working tree of a sandbox outlives it.

alter table sandboxes add column replaces text, add column replaces_for text;
comment on column sandboxes.replaces is 'The sandbox whose working tree this one begins with. While this one is being built, threads stay on that one.';
comment on column sandboxes.replaces_for is 'The one thread that moves; null: all threads on the replaced one.';
create unique index sandboxes_replacement on sandboxes (replaces, coalesce(replaces_for, '')) where status = 'pending';
create index sandboxes_replaces_idx on sandboxes (replaces) where replaces is not null;

create table sandbox_trees (
  sandbox_id text primary key,
  house_id   text not null,
  commits    jsonb not null default '{}',
  used_at    timestamptz,
  saved_at   timestamptz,
  saved      jsonb not null default '[]',
  steps      jsonb not null default '[]',
  foreign key (house_id, sandbox_id) references sandboxes (house_id, id) on delete cascade
) with (fillfactor = 50); -- so that an update stays in its page
comment on table sandbox_trees is 'What is known of the working tree of a sandbox. It has a table of its own, because watchers of a sandbox are notified of each change of its record.';
comment on column sandbox_trees.commits is 'The commit at which each repository was cloned, by its folder.';
comment on column sandbox_trees.used_at is 'When something last ran in it, to within some seconds.';
comment on column sandbox_trees.saved_at is 'When the tree was last saved.';
comment on column sandbox_trees.saved is '[{folder, commit, artifact, files, …}]: what was saved, a patch for each repository, an archive for other files.';
comment on column sandbox_trees.steps is '[{name, exit_code, duration_ms, output}]: how the sandbox was built.';
alter table sandbox_trees enable row level security;
create policy tenant on sandbox_trees to arbe_app using (house_id = current_house());
grant select, insert, update on sandbox_trees to arbe_app;

-- unsaved_sandboxes returns sandboxes that some machines reach, and that were used since their tree was saved, but not lately.
create function unsaved_sandboxes(p_machines text[], p_quiet interval, p_most int) returns table (house_id text, id text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.house_id, s.id
    from public.sandbox_trees t join public.sandboxes s on s.id = t.sandbox_id
    where s.status = 'live' and (s.machine_id is null or s.machine_id = any (p_machines))
      and t.used_at > coalesce(t.saved_at, '-infinity') and t.used_at < now() - p_quiet
    order by t.used_at
    limit p_most
$$;

-- spare_sandboxes returns the ephemeral sandboxes that some machines reach, and on which no thread runs.
create function spare_sandboxes(p_machines text[], p_quiet interval, p_most int) returns table (house_id text, id text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.house_id, s.id
    from public.sandboxes s left join public.sandbox_trees t on t.sandbox_id = s.id
    where s.status = 'live' and s.ephemeral and (s.machine_id is null or s.machine_id = any (p_machines))
      and coalesce(t.used_at, s.created_at) < now() - p_quiet
      and not exists (select from public.threads r where r.sandbox_id = s.id and r.status = 'running')
    order by s.created_at
    limit p_most
$$;
revoke execute on function unsaved_sandboxes, spare_sandboxes from public;
grant execute on function unsaved_sandboxes, spare_sandboxes to arbe_app;

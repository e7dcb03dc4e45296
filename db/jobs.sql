-- Indexes of ours on the queue's table, which the queue's library migrates. Package jobs chooses the next jobs and counts
-- those of a house with them, at a cost that does not grow with the jobs that wait. Each is created where it is missing;
-- "create index if not exists" would lock the table with each start.
do $$ begin
  -- The jobs that wait, by house and by thread.
  if to_regclass('river.river_job_waiting_by_house') is null then
    create index river_job_waiting_by_house on river.river_job
      (queue, (coalesce(metadata->>'machine', '')), (coalesce(args->>'house', id::text)), id) where state = 'available';
  end if;
  if to_regclass('river.river_job_waiting_by_thread') is null then
    create index river_job_waiting_by_thread on river.river_job
      (queue, (coalesce(metadata->>'machine', '')), (coalesce(args->>'house', id::text)), (coalesce(args->>'thread', id::text)), id)
      where state = 'available';
  end if;
  -- All jobs of a house that have not ended.
  if to_regclass('river.river_job_active_by_house') is null then
    create index river_job_active_by_house on river.river_job
      (queue, (args->>'house'), (args->>'thread')) where state in ('available', 'running', 'scheduled', 'retryable');
  end if;
end $$;

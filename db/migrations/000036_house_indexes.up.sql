-- For the question whether a thread is the primary one of its house, and for the oldest house, which were answered by
-- reading all houses.
create index houses_by_primary_thread on houses (primary_thread_id);
create index houses_by_age on houses (created_at, id);

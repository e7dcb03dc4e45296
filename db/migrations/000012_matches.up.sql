-- Threads and sandboxes are found by the beginning of their ids, whatever the collation of the database, and threads by
-- their names.
create index threads_by_prefix on threads (house_id, id text_pattern_ops);
create index threads_by_name on threads (house_id, name) where name is not null;
create index sandboxes_by_prefix on sandboxes (house_id, id text_pattern_ops);

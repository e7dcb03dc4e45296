-- Artifacts are found by the beginning of their ids, whatever the collation of the database, and by their labels, the
-- newest first, because many can have the same label.
create index artifacts_by_prefix on artifacts (house_id, id text_pattern_ops);
create index artifacts_by_label on artifacts (house_id, label, created_at, id) where label is not null;

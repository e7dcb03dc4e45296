drop function chats_between(bigint, bigint, bigint, text[], int);
drop function unindexed_after(bigint, int);
drop function index_next(bigint[], int);
-- The version before makes entries searchable when it decides about them. What is decided and not searchable counts as older.
update decisions d set unindexed = 9223372036854775807
  from streams s left join search_cursors c on c.stream_id = s.id
  where s.id = d.stream_id and d.decided > coalesce(c.indexed, s.fork_seq, 0);
drop table search_cursors;
grant execute on function index_entries to arbe_app;

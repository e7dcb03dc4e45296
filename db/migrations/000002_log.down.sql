drop function inherited_entries, lineage, stranger_to;
drop table producers, entries, streams;
drop function append_entries, append_batch, append_one, stream_tails, closed_streams, delete_stream, delete_own_stream,
  close_own_stream, touch_streams, delete_expired_streams, notify_stream_deleted, notify_stream_closed, begin_fork,
  collect_fork_source, delete_entries_of_stream, entries_are_append_only, entries_cannot_be_truncated;

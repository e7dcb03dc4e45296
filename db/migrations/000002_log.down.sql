drop trigger delete_stream on threads;
alter table threads drop constraint threads_house_id_stream_id_fkey;
drop table entries, streams;
drop function append_entries, append_batch, stream_tails, delete_stream_of_thread, delete_entries_of_stream, tell_stream_deleted, entries_are_append_only, entries_cannot_be_truncated;

drop view thread_heads;
alter table houses drop constraint houses_id_primary_thread_id_fkey;
drop table threads;
drop function running_threads, repair_thread_activity, touch_threads, said_text, pause_stream_of_thread, delete_stream_of_thread, thread_runs;

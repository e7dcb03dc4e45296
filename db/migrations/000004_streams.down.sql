create or replace function delete_stream_of_thread() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  delete from streams where house_id = old.house_id and name = old.stream_id;
  return null;
end $$;
drop table producers;
drop trigger begin_fork on streams;
drop trigger collect_source on streams;
drop trigger tell_closed on streams;
drop function begin_fork, collect_fork_source, delete_stream, delete_own_stream, close_own_stream, tell_stream_closed,
  touch_streams, delete_expired_streams, closed_streams;
alter table streams
  drop constraint streams_house_id_source_id_fkey,
  drop constraint streams_house_id_id_key,
  drop column ttl_seconds, drop column expires_at, drop column last_stream_seq, drop column deleted_at,
  drop column source_id, drop column fork_seq, drop column fork_sub;

drop function log_bytes;
create function log_bytes(out total bigint, out most bigint)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select coalesce(sum(h.bytes), 0), coalesce(max(h.bytes), 0) into total, most
  from (select sum(l.bytes) as bytes from public.log_sizes l group by l.house_id) h;
end $$;
revoke execute on function log_bytes from public;
grant execute on function log_bytes to arbe_app;

create or replace function measure_logs(p_streams bigint[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(hashtext('arbe.log_sizes'));
  insert into public.log_sizes as l (stream_id, house_id, upto, entries, bytes)
  select s.id, s.house_id, n.upto, n.entries, n.bytes from public.streams s
  left join public.log_sizes had on had.stream_id = s.id
  cross join lateral (
    select max(e.seq) as upto, count(*) as entries, sum(pg_column_size(e.payload) + 100) as bytes
    from public.entries e where e.stream_id = s.id and e.seq > coalesce(had.upto, 0)) n
  where s.id = any(p_streams) and n.entries > 0
  on conflict (stream_id) do update set upto = excluded.upto, entries = l.entries + excluded.entries, bytes = l.bytes + excluded.bytes;
end $$;

drop table log_shares;

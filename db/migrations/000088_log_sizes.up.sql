-- How large the logs of houses are, so that a house cannot fill the database; and the marks of what retention deleted end.

create table log_sizes (
  stream_id bigint primary key,
  house_id  text not null,
  upto      bigint not null,
  entries   bigint not null,
  bytes     bigint not null,
  foreign key (house_id, stream_id) references streams (house_id, id) on delete cascade
);
comment on table log_sizes is 'How large each log was when it was last measured: seconds after its last entry.';
comment on column log_sizes.upto is 'The last entry that was counted.';
comment on column log_sizes.bytes is 'What the entries take in the database, compressed, with 100 bytes for each entry''s other columns.';
create index log_sizes_of_house on log_sizes (house_id) include (entries, bytes);
alter table log_sizes enable row level security;
create policy tenant on log_sizes for select to arbe_app using (house_id = current_house());
grant select on log_sizes to arbe_app;

insert into log_sizes (stream_id, house_id, upto, entries, bytes)
select stream_id, house_id, max(seq), count(*), sum(pg_column_size(payload) + 100) from entries group by 1, 2;

-- Counts what was appended to logs since they were last measured. It acts as the owner, because a server measures the logs of
-- all houses together. One server measures at a time, so that no entry is counted twice.
create function measure_logs(p_streams bigint[]) returns void
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
revoke execute on function measure_logs from public;
grant execute on function measure_logs to arbe_app;

-- Returns how large all logs are together, and those of the house that has most.
create function log_bytes(out total bigint, out most bigint)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select coalesce(sum(h.bytes), 0), coalesce(max(h.bytes), 0) into total, most
  from (select sum(l.bytes) as bytes from public.log_sizes l group by l.house_id) h;
end $$;
revoke execute on function log_bytes from public;
grant execute on function log_bytes to arbe_app;

-- Deletes marks of what retention deleted, of all houses, and returns how many.
create index expired_at on expired (at);
create function drop_expired(p_before timestamptz, p_most integer) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare n bigint;
begin
  delete from public.expired x where (x.kind, x.id) in (select e.kind, e.id from public.expired e where e.at < p_before order by e.at limit p_most);
  get diagnostics n = row_count;
  return n;
end $$;
revoke execute on function drop_expired from public;
grant execute on function drop_expired to arbe_app;

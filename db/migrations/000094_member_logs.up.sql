-- How much of a house's logs each person and bot wrote, so that one member cannot fill the quota of all.

create table log_shares (
  stream_id bigint not null,
  agent_id  uuid not null,
  house_id  text not null,
  bytes     bigint not null,
  primary key (stream_id, agent_id),
  foreign key (house_id, stream_id) references streams (house_id, id) on delete cascade
);
comment on table log_shares is 'How much of each log each author wrote, when it was last measured. The result of a command counts for whoever ran the command.';
comment on column log_shares.bytes is 'As log_sizes.bytes.';
create index log_shares_of_agent on log_shares (house_id, agent_id) include (bytes);
create index on log_shares (house_id, stream_id);
alter table log_shares enable row level security;
create policy tenant on log_shares for select to arbe_app using (house_id = current_house());
grant select on log_shares to arbe_app;

-- Of earlier results of commands nobody is the author.
insert into log_shares (stream_id, agent_id, house_id, bytes)
select e.stream_id, e.author_agent_id, e.house_id, sum(pg_column_size(e.payload) + 100) from entries e
join log_sizes l on l.stream_id = e.stream_id and e.seq <= l.upto
where e.author_agent_id is not null group by 1, 2, 3;

-- Counts what was appended to logs since they were last measured, and who wrote it. It acts as the owner, because a server
-- measures the logs of all houses together. One server measures at a time, so that no entry is counted twice.
create or replace function measure_logs(p_streams bigint[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(hashtext('arbe.log_sizes'));
  with grown as materialized (
    select s.id, s.house_id, n.author, n.upto, n.entries, n.bytes from public.streams s
    left join public.log_sizes had on had.stream_id = s.id
    cross join lateral (
      select coalesce(e.author_agent_id, (select c.author_agent_id from public.entries c
          where e.type = 'command_result' and c.stream_id = e.stream_id and c.id = left(e.id, -length('.result')) and c.type = 'command')) as author,
        max(e.seq) as upto, count(*) as entries, sum(pg_column_size(e.payload) + 100) as bytes
      from public.entries e where e.stream_id = s.id and e.seq > coalesce(had.upto, 0) group by 1) n
    where s.id = any(p_streams)),
  shares as (
    insert into public.log_shares as l (stream_id, agent_id, house_id, bytes)
    select g.id, g.author, g.house_id, g.bytes from grown g where g.author is not null
    on conflict (stream_id, agent_id) do update set bytes = l.bytes + excluded.bytes)
  insert into public.log_sizes as l (stream_id, house_id, upto, entries, bytes)
  select g.id, g.house_id, max(g.upto), sum(g.entries), sum(g.bytes) from grown g group by 1, 2
  on conflict (stream_id) do update set upto = excluded.upto, entries = l.entries + excluded.entries, bytes = l.bytes + excluded.bytes;
end $$;

-- Returns how large all logs are together, those of the house that has most, and what the member of a house wrote who wrote most.
drop function log_bytes;
create function log_bytes(out total bigint, out most bigint, out most_of_member bigint)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select coalesce(sum(h.bytes), 0), coalesce(max(h.bytes), 0) into total, most
  from (select sum(l.bytes) as bytes from public.log_sizes l group by l.house_id) h;
  select coalesce(max(a.bytes), 0) into most_of_member
  from (select sum(l.bytes) as bytes from public.log_shares l group by l.house_id, l.agent_id) a;
end $$;
revoke execute on function log_bytes from public;
grant execute on function log_bytes to arbe_app;

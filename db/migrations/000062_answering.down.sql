drop function undecided;
create function undecided(p_streams bigint[])
returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, driver text, roster bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, th.agent_id::text, h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;
revoke execute on function undecided from public;
grant execute on function undecided to arbe_app;

create or replace function chats_between(p_stream bigint, p_behind bigint, p_upto bigint, p_handles text[], p_most int)
  returns table (seq bigint, id text, author text, payload json, ts timestamptz)
  language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  select e.seq, e.id, e.author_agent_id::text, e.payload, e.ts from public.entries e
    where e.stream_id = p_stream and e.seq > p_behind and e.seq <= p_upto and e.type = 'chat' and e.author_agent_id is not null
      and (p_handles is null or e.payload::text like '%\\u00%' or e.payload::text like '%@%' and lower(e.payload::text collate "C")
        like any (array(select '%@' || h || '%' from unnest(p_handles) h)))
    order by e.seq limit p_most
$$;

drop view thread_heads;
alter table threads drop column answering_agent_id, drop column answering_decided;
create view thread_heads with (security_invoker = true) as
select t.*, coalesce(e.seq, 0) as tail, coalesce(e.ts, t.created_at) as last_activity,
  coalesce((select a.name from agents a where a.id = t.last_said_by), '')::text as last_said_name,
  coalesce((select a.name from agents a where a.id = t.running_agent), '')::text as running_name
from threads t
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join lateral (select seq, ts from entries where entries.stream_id = s.id order by seq desc limit 1) e on true;
comment on view thread_heads is 'Threads with the end of their logs and the names of who spoke last and who works there; empty if nobody does. It shows each role the threads that it may read.';
comment on column thread_heads.tail is 'The position of the last entry; 0 if there is none.';
comment on column thread_heads.last_activity is 'When the last entry was written; the thread''s creation if there is none.';
grant select on thread_heads to arbe_app;

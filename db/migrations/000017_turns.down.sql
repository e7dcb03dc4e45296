drop function undecided(bigint[]);
create function undecided(p_streams bigint[]) returns table (stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail
    from public.decisions d,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided
$$;
revoke execute on function undecided from public;
grant execute on function undecided to arbe_app;
drop function active_turns;
drop table model_calls;
drop table turns;

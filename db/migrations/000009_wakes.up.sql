-- The end of a stream is looked up in its index. Joined to its entries it was looked for among all entries there are,
-- once tables were small or their statistics old.
create or replace function subscription_tails(p_id bigint) returns table (stream text, explicit boolean, acked bigint, tail bigint)
  language sql stable as $$
  select l.stream, l.explicit, l.acked, coalesce((
      select (select max(e.seq) from entries e where e.stream_id = s.id) from streams s
      where s.house_id = l.house_id and s.name = l.stream and s.deleted_at is null), 0)
    from subscription_streams l where l.subscription_id = p_id and (l.explicit or l.matched)
$$;

-- begin_wakes is asked after nearly every append, and a function in SQL is planned at every call. One in PL/pgSQL
-- keeps its plan. It does what it did.
create or replace function begin_wakes(p_limit int) returns table (house_id text, id bigint, generation bigint)
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
begin
  return query
    update subscriptions s set generation = s.generation + 1, wake_id = 'w_' || replace(gen_random_uuid()::text, '-', ''),
        holder = null, token_hash = null, lease_until = now() + s.lease
      where s.id in (
        select d.id from subscriptions d
        where d.next_attempt_at <= now() and (d.wake_id is null or d.lease_until < now())
          and exists (select from subscription_tails(d.id) t where t.tail > t.acked)
        limit p_limit for update skip locked)
      returning s.house_id, s.id, s.generation;
end $$;

-- How long sandboxes run, and what that costs.

alter table sandbox_trees
  add column running_seen_at timestamptz,
  add column hourly_micros   bigint,
  add column running_ms      bigint not null default 0,
  add column unpriced_ms     bigint not null default 0,
  add column cost_nanos      bigint not null default 0;
comment on column sandbox_trees.running_seen_at is 'The last moment at which the sandbox was known to run; null if it is not known to run.';
comment on column sandbox_trees.hourly_micros is 'What an hour of running costs, in millionths of a US dollar; -1 if that is not known; null if its driver has not said yet, and then its time is not counted.';
comment on column sandbox_trees.running_ms is 'How long it has run.';
comment on column sandbox_trees.unpriced_ms is 'The part of running_ms whose price was not known.';
comment on column sandbox_trees.cost_nanos is 'What the rest of running_ms cost, in billionths of a US dollar.';

create table sandbox_spending (
  house_id    text not null references houses (id) on delete cascade,
  day         date not null,
  provider    text not null,
  running_ms  bigint not null default 0,
  unpriced_ms bigint not null default 0,
  cost_nanos  bigint not null default 0,
  primary key (house_id, day, provider)
) with (fillfactor = 50); -- so that an update stays in its page
comment on table sandbox_spending is 'How long the sandboxes of a house ran in a day (UTC), and what that cost. It outlives them. The columns have the meaning that they have in sandbox_trees.';
alter table sandbox_spending enable row level security;
create policy tenant on sandbox_spending to arbe_app using (house_id = current_house());
grant select, insert, update on sandbox_spending to arbe_app;

-- Adds running time to the day of a house, and returns its cost in billionths of a US dollar.
create function add_running_time(p_house text, p_provider text, p_ms bigint, p_hourly bigint) returns bigint
  language plpgsql set search_path = public, pg_temp as $$
declare
  cost bigint := case when p_hourly > 0 then (p_ms::numeric * p_hourly / 3600)::bigint else 0 end;
begin
  if p_ms > 0 then
    insert into sandbox_spending as s (house_id, day, provider, running_ms, unpriced_ms, cost_nanos)
      values (p_house, (now() at time zone 'UTC')::date, p_provider, p_ms, case when p_hourly < 0 then p_ms else 0 end, cost)
      on conflict (house_id, day, provider) do update set running_ms = s.running_ms + excluded.running_ms,
        unpriced_ms = s.unpriced_ms + excluded.unpriced_ms, cost_nanos = s.cost_nanos + excluded.cost_nanos;
  end if;
  return cost;
end $$;
revoke all on function add_running_time(text, text, bigint, bigint) from public;
grant execute on function add_running_time(text, text, bigint, bigint) to arbe_app;

-- Records that a sandbox runs ('running'), does not run ('stopped'), or is being deleted ('removed') at a moment. The time since the
-- last moment at which it was known to run counts if it still runs or is being deleted, and if it is at most p_longest. So a
-- stop that nobody saw is never counted for longer than that. p_hourly replaces the price from this moment on; null keeps it. p_before is
-- how long the sandbox ran before its price was first known; it counts once. The lock on the row makes servers that see the same time
-- count it once.
create function count_running_time(p_sandbox text, p_state text, p_at timestamptz, p_hourly bigint, p_longest interval, p_before bigint) returns void
  language plpgsql set search_path = public, pg_temp as $$
declare
  t record;
  ms bigint := 0;
  price bigint;
  cost bigint;
begin
  select s.house_id, s.provider, s.status, r.running_seen_at as seen, r.hourly_micros as hourly into t
    from sandbox_trees r join sandboxes s on s.id = r.sandbox_id where r.sandbox_id = p_sandbox for update of r;
  price := coalesce(t.hourly, p_hourly);
  if not found or price is null or p_state = 'running' and t.status <> 'live' then
    return;
  end if;
  if t.hourly is null then
    ms := p_before;
  end if;
  if t.seen > p_at then
    if p_state = 'stopped' then
      return; -- it was started again
    end if;
  elsif p_state <> 'stopped' and t.seen >= p_at - p_longest then
    ms := ms + floor(extract(epoch from p_at - t.seen) * 1000);
  end if;
  cost := add_running_time(t.house_id, t.provider, ms, price);
  update sandbox_trees set running_ms = running_ms + ms, unpriced_ms = unpriced_ms + case when price < 0 then ms else 0 end, cost_nanos = cost_nanos + cost,
      running_seen_at = case when p_state = 'running' then greatest(running_seen_at, p_at) end, hourly_micros = coalesce(p_hourly, hourly_micros)
    where sandbox_id = p_sandbox and (ms > 0 or p_state = 'running' or running_seen_at is not null or p_hourly <> hourly_micros or hourly_micros is null);
end $$;
revoke all on function count_running_time(text, text, timestamptz, bigint, interval, bigint) from public;
grant execute on function count_running_time(text, text, timestamptz, bigint, interval, bigint) to arbe_app;

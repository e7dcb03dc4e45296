-- busy_sandboxes returns the sandboxes of some drivers that some machines reach, and that are in use: a thread runs on them, or
-- something ran in them lately.
create function busy_sandboxes(p_providers text[], p_machines text[], p_quiet interval, p_most int) returns table (house_id text, id text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.house_id, s.id
    from public.sandboxes s left join public.sandbox_trees t on t.sandbox_id = s.id
    where s.status = 'live' and s.provider = any (p_providers) and (s.machine_id is null or s.machine_id = any (p_machines))
      and (t.used_at > now() - p_quiet or exists (select from public.threads r where r.sandbox_id = s.id and r.status = 'running'))
    order by s.created_at
    limit p_most
$$;
revoke execute on function busy_sandboxes from public;
grant execute on function busy_sandboxes to arbe_app;

-- live_sandboxes returns the live sandboxes of a provider that some machines reach, in the operator's account, in the order of their
-- ids. It acts as the owner, because a sweep asks for the boxes of all houses.
create function live_sandboxes(p_provider text, p_machines text[], p_after text, p_most int) returns table (house_id text, id text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.house_id, s.id
    from public.sandboxes s
    where s.status = 'live' and s.provider = p_provider and not s.own_account
      and (s.machine_id is null or s.machine_id = any (p_machines)) and s.id > p_after
    order by s.id
    limit p_most
$$;
revoke execute on function live_sandboxes from public;
grant execute on function live_sandboxes to arbe_app;

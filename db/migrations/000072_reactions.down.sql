drop table reactions;

drop function credentials_of;
create function credentials_of(p_hashes bytea[]) returns table (which bigint, agent_id uuid, house_id text, credential text, status text, lasts double precision)
  language sql stable security definer set search_path = public, pg_temp as $$
  select h.which, c.agent_id, c.house_id, c.credential, case when c.revoked then 'revoked' when c.expires_at <= now() then 'expired' else 'ok' end,
      extract(epoch from least(c.expires_at, now() + interval '1 year') - now()) -- least() handles infinity
    from unnest(p_hashes) with ordinality h (hash, which)
    cross join lateral (
      select s.agent_id, null as house_id, 'session' as credential, s.expires_at, false as revoked from login_sessions s where s.hash = h.hash
      union all
      select k.agent_id, k.house_id, 'api_key', k.expires_at, k.revoked_at is not null from api_keys k where k.hash = h.hash
    ) c
$$;
revoke execute on function credentials_of from public;
grant execute on function credentials_of to arbe_app;

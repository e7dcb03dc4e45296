-- The end of a stream is looked up in its index. Joined to its entries it was looked for among all entries there are,
-- once tables were small or their statistics old.
create or replace function subscription_tails(p_id bigint) returns table (stream text, explicit boolean, acked bigint, tail bigint)
  language sql stable as $$
  select l.stream, l.explicit, l.acked, coalesce((
      select (select max(e.seq) from entries e where e.stream_id = s.id) from streams s
      where s.house_id = l.house_id and s.name = l.stream and s.deleted_at is null), 0)
    from subscription_streams l where l.subscription_id = p_id and (l.explicit or l.matched)
$$;

-- A function in SQL is planned at every call; one in PL/pgSQL keeps its plan, when it is told not to look for better
-- ones by the arguments. These are called with nearly every append and every request, and do what they did.

create or replace function begin_wakes(p_limit int) returns table (house_id text, id bigint, generation bigint)
  language plpgsql volatile security definer
  set search_path = public, pg_temp set plan_cache_mode = force_generic_plan as $$
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

create or replace function authenticate(p_hash bytea) returns table (
  agent_id uuid, house_id text, credential text, standing text
) language plpgsql stable security definer
  set search_path = public, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
    select agent_id, null::text, 'session', case when expires_at > now() then 'ok' else 'expired' end
      from login_sessions where hash = p_hash
    union all
    select agent_id, house_id, 'api_key',
        case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'ok' end
      from api_keys where hash = p_hash;
end $$;

create or replace function place_of(p_kind text, p_id text, p_agent uuid) returns table (
  house_id text, role text
) language plpgsql stable security definer
  set search_path = public, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
    select m.house_id, case when exists (select from api_keys where p_kind = 'API key' and id = p_id and agent_id = p_agent) then 'owner' else m.role end
     from members m
     where m.agent_id = p_agent and m.house_id = case p_kind
       when 'house' then p_id
       when 'thread' then (select house_id from threads where id = p_id)
       when 'environment' then (select house_id from environments where id = p_id)
       when 'sandbox' then (select house_id from sandboxes where id = p_id)
       when 'API key' then (select house_id from api_keys where id = p_id)
     end;
end $$;

create or replace function thread_token(p_key text, p_house text, p_thread text, p_agent uuid, p_epoch bigint, p_joined timestamptz)
returns table (role text, standing text)
language plpgsql stable security definer
  set search_path = public, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
    select m.role, case
        when not exists (select from signing_keys where id = p_key) then 'unknown'
        when t.id is null then 'deleted'
        when m.joined_at is distinct from p_joined then 'left'
        when not thread_runs(t.status) then t.status
        when t.token_epoch <> p_epoch then 'revoked'
        else 'ok'
      end
      from (select) token
      left join threads t on t.id = p_thread and t.house_id = p_house
      left join members m on m.agent_id = p_agent and m.house_id = p_house;
end $$;

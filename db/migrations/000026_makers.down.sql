alter function append_one(bigint, text, bigint, text, uuid, text, json) reset search_path;

drop function tokens_of;
create function tokens_of(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamptz[])
returns table (which bigint, agent_id uuid, role text, status text)
language sql stable security definer set search_path = public, pg_temp as $$
  select u.which, m.agent_id, m.role, case
      when not exists (select from signing_keys k where k.id = u.key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from u.joined then 'left'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> u.epoch then 'revoked'
      else 'ok'
    end
    from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined) with ordinality u (key, house, thread, agent, epoch, joined, which)
    left join threads t on t.id = u.thread and t.house_id = u.house
    left join members m on m.agent_id = u.agent and m.house_id = u.house
$$;
revoke execute on function tokens_of from public;
grant execute on function tokens_of to arbe_app;

drop trigger revoke_keys on members;
drop trigger revoke_keys_of_demoted on members;
drop function revoke_keys_of_maker;
drop policy made on api_keys;
create policy made on api_keys for insert to arbe_app with check (
  agent_id = current_agent() and coalesce(house_id = current_house(), true) or
  house_id = current_house() and
    exists (select from agents a where a.id = api_keys.agent_id and a.kind = 'bot') and
    exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner'));
alter table api_keys drop column created_by;

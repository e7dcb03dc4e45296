drop function standing_of_hashes, standing_of_tokens, places_of;
create or replace function place_of(p_kind text, p_id text, p_agent uuid) returns table (
  house_id text, role text
) language sql stable security definer set search_path = public, pg_temp as $$
  select m.house_id, m.role from members m
   where m.agent_id = p_agent and m.house_id = case p_kind
     when 'house' then p_id
     when 'thread' then (select house_id from threads where id = p_id)
     when 'environment' then (select house_id from environments where id = p_id)
     when 'sandbox' then (select house_id from sandboxes where id = p_id)
   end
$$;
drop function note_api_keys_used;
alter table api_keys drop column last_used_at;
revoke update (revoked_at) on api_keys from arbe_app;
grant update on api_keys to arbe_app;
drop policy seen on api_keys;
drop policy revoked on api_keys;
drop policy made on api_keys;
create policy own on api_keys to arbe_app
  using (agent_id = current_agent() or house_id = current_house());
drop trigger end_tokens on threads;
drop function thread_token, end_thread_tokens, thread_runs;
alter table threads drop column token_epoch;
drop table signing_keys;

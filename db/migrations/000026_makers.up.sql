-- What an owner made for a bot ends when the owner leaves the house or becomes a member: API keys and thread tokens, as
-- invites do already. Otherwise a removed owner would stay in the house with the key of a bot.

alter table api_keys add column created_by uuid references agents (id) on delete set null;
alter table api_keys alter column created_by set default current_agent();
comment on column api_keys.created_by is 'Who made it: its holder, or an owner of the house for a bot. Null for a bot''s key from before this was recorded.';
update api_keys k set created_by = agent_id from agents a where a.id = k.agent_id and a.kind = 'human';
create index on api_keys (house_id, created_by);

drop policy made on api_keys;
create policy made on api_keys for insert to arbe_app with check (
  created_by = current_agent() and (
    agent_id = current_agent() and coalesce(house_id = current_house(), true) or
    house_id = current_house() and
      exists (select from agents a where a.id = api_keys.agent_id and a.kind = 'bot') and
      exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner')));

-- Revokes the keys that a former owner made for bots. The trigger of api_keys notifies all servers.
create function revoke_keys_of_maker() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  update api_keys set revoked_at = now()
    where house_id = old.house_id and created_by = old.agent_id and agent_id <> old.agent_id and revoked_at is null;
  return null;
end $$;
revoke execute on function revoke_keys_of_maker from public;
create trigger revoke_keys after delete on members
  for each row when (old.role = 'owner') execute function revoke_keys_of_maker();
create trigger revoke_keys_of_demoted after update of role on members
  for each row when (old.role = 'owner' and new.role <> 'owner') execute function revoke_keys_of_maker();

-- tokens_of also asks for the makers of tokens: the owners who made them for bots, an empty text for a token that its
-- holder made. A token whose maker is no owner any more is 'orphaned'.
drop function tokens_of;
create function tokens_of(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamptz[], p_makers text[])
returns table (which bigint, agent_id uuid, role text, status text, maker_joined_at timestamptz)
language sql stable security definer set search_path = public, pg_temp as $$
  select u.which, m.agent_id, m.role, case
      when not exists (select from signing_keys k where k.id = u.key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from u.joined then 'left'
      when u.maker <> '' and o.agent_id is null then 'orphaned'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> u.epoch then 'revoked'
      else 'ok'
    end, o.joined_at
    from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined, p_makers) with ordinality u (key, house, thread, agent, epoch, joined, maker, which)
    left join threads t on t.id = u.thread and t.house_id = u.house
    left join members m on m.agent_id = u.agent and m.house_id = u.house
    left join members o on o.agent_id = nullif(u.maker, '')::uuid and o.house_id = u.house and o.role = 'owner'
$$;
revoke execute on function tokens_of from public;
grant execute on function tokens_of to arbe_app;

-- Every function states its search_path, also the one whose body qualifies all that it names.
alter function append_one(bigint, text, bigint, text, uuid, text, json) set search_path = public, pg_temp;

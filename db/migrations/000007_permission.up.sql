-- Permission: what servers cache of who may do what, and how they learn that it has changed.

-- Returns the houses of targets, and the roles of agents there and since when. There is no row if the target does not
-- exist or the agent is not in its house. thread_id is the thread of an artifact, holder the holder of an API key, and
-- epoch the token epoch of a running thread.
create function memberships_of(p_kinds text[], p_ids text[], p_agents uuid[]) returns table (
  which bigint, agent_id uuid, house_id text, role text, joined_at timestamptz, thread_id text, holder uuid, epoch bigint
) language sql stable security definer set search_path = public, pg_temp as $$
  select q.which, m.agent_id, m.house_id, m.role, m.joined_at, p.thread_id, p.holder, p.epoch
    from unnest(p_kinds, p_ids, p_agents) with ordinality q (kind, id, agent, which)
    cross join lateral (
      select q.id as house_id, null as thread_id, null::uuid as holder, null::bigint as epoch where q.kind = 'house'
      union all
      select house_id, null, null, case when thread_runs(status) then token_epoch end from threads where q.kind = 'thread' and id = q.id
      union all
      select house_id, null, null, null from environments where q.kind = 'environment' and id = q.id
      union all
      select house_id, null, null, null from sandboxes where q.kind = 'sandbox' and id = q.id
      union all
      select house_id, thread_id, null, null from artifacts where q.kind = 'artifact' and id = q.id
      union all
      select house_id, null, agent_id, null from api_keys where q.kind = 'API key' and id = q.id
    ) p
    join members m on m.house_id = p.house_id and m.agent_id = q.agent
$$;

-- notify_permission announces which answers about permission are no longer valid: to all servers as a notification on
-- arbe_permission at commit, and to the changing connection as a notice (SQLSTATE AR001), so that it knows before its
-- transaction ends. A word names the subject of the answers:
--   credential:<hash>  member:<house>/<agent>  signing_key:<id>
--   thread:<id>  environment:<id>  sandbox:<id>  artifact:<id>  API key:<id>
-- and * means everything. A new row needs no word, because only existing rows were answered with yes; but a person who
-- joins a house changes the number of their houses.
create function notify_permission() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  words text[];
  word text;
begin
  if tg_op = 'TRUNCATE' then
    words := array['*'];
  elsif tg_table_name = 'login_sessions' then
    words := array['credential:' || encode(old.hash, 'hex')];
  elsif tg_table_name = 'api_keys' then
    words := array['credential:' || encode(old.hash, 'hex'), 'API key:' || old.id];
  elsif tg_table_name = 'members' and tg_op = 'INSERT' then
    words := array['member:' || new.house_id || '/' || new.agent_id];
  elsif tg_table_name = 'members' then
    words := array['member:' || old.house_id || '/' || old.agent_id];
    if tg_op = 'UPDATE' then
      words := words || ('member:' || new.house_id || '/' || new.agent_id);
    end if;
  elsif tg_table_name = 'sandboxes' then
    words := array['sandbox:' || old.id];
  else -- threads, environments, artifacts, signing_keys
    words := array[left(tg_table_name, -1) || ':' || old.id];
  end if;
  foreach word in array words loop
    perform pg_notify('arbe_permission', word);
    raise notice '%', word using errcode = 'AR001';
  end loop;
  return null;
end $$;

create trigger notify_permission after insert or delete on members for each row execute function notify_permission();
create trigger notify_permission after delete on login_sessions for each row execute function notify_permission();
create trigger notify_permission after delete on api_keys for each row execute function notify_permission();
create trigger notify_permission after delete on signing_keys for each row execute function notify_permission();
create trigger notify_permission after delete on threads for each row execute function notify_permission();
create trigger notify_permission after delete on environments for each row execute function notify_permission();
create trigger notify_permission after delete on sandboxes for each row execute function notify_permission();
create trigger notify_permission after delete on artifacts for each row execute function notify_permission();

-- Rows change often, but rarely in the columns that permission depends on.
create trigger notify_permission_changed after update on members for each row
  when (old is distinct from new) execute function notify_permission();
create trigger notify_permission_changed after update on login_sessions for each row
  when (old is distinct from new) execute function notify_permission();
create trigger notify_permission_changed after update on api_keys for each row
  when ((old.id, old.hash, old.agent_id, old.house_id, old.expires_at, old.revoked_at)
    is distinct from (new.id, new.hash, new.agent_id, new.house_id, new.expires_at, new.revoked_at)) execute function notify_permission();
create trigger notify_permission_changed after update on signing_keys for each row
  when (old is distinct from new) execute function notify_permission();
create trigger notify_permission_changed after update on threads for each row
  when ((old.id, old.house_id, old.token_epoch) is distinct from (new.id, new.house_id, new.token_epoch)) execute function notify_permission();
create trigger notify_permission_changed after update on environments for each row
  when ((old.id, old.house_id) is distinct from (new.id, new.house_id)) execute function notify_permission();
create trigger notify_permission_changed after update on sandboxes for each row
  when ((old.id, old.house_id) is distinct from (new.id, new.house_id)) execute function notify_permission();
create trigger notify_permission_changed after update on artifacts for each row
  when ((old.id, old.house_id, old.thread_id) is distinct from (new.id, new.house_id, new.thread_id)) execute function notify_permission();

do $$
declare changes text;
begin
  foreach changes in array array['members', 'login_sessions', 'api_keys', 'signing_keys', 'threads', 'environments', 'sandboxes', 'artifacts'] loop
    execute format('create trigger notify_permission_truncated after truncate on %I for each statement execute function notify_permission()', changes);
  end loop;
end $$;

revoke execute on function memberships_of, notify_permission from public;
grant execute on function memberships_of to arbe_app;

-- Each house has a log of who changed what in its administration. Triggers write it in the transaction of the change, so no change
-- is without its event.

create table audit_events (
  id           text primary key default generate_short_id(),
  house_id     text not null references houses (id) on delete cascade,
  at           timestamptz not null default now(),
  xact         xid8 not null default pg_current_xact_id(),
  actor_id     uuid,
  actor_kind   text not null default '',
  actor_name   text not null default '',
  via          text not null default '',
  key_name     text not null default '',
  action       text not null check (action in ('created', 'changed', 'deleted')),
  subject_kind text not null,
  subject_id   text not null,
  subject_name text not null default '',
  changes      jsonb not null default '{}',
  unique (house_id, at, xact, subject_kind, subject_id)
);
comment on table audit_events is 'Who changed what in the administration of a house. Only the function audit_change writes it.';
comment on column audit_events.xact is 'The transaction. All its changes of one subject are one event.';
comment on column audit_events.actor_id is 'The person or bot; null for arbe itself or somebody with access to the database. Their name and the subject''s are those of that time.';
comment on column audit_events.via is 'browser, cli, api or token; empty if it is not known.';
comment on column audit_events.key_name is 'The name of the API key that the actor showed; empty for other credentials.';
comment on column audit_events.changes is 'By the name of the column: [before, after], or null if the log must not have the values.';
create index on audit_events (house_id, at, id);
create index on audit_events (at);
alter table audit_events enable row level security;
create policy tenant on audit_events to arbe_app using (house_id = current_house() and (current_agent() is null
  or exists (select from members m where m.house_id = current_house() and m.agent_id = current_agent() and m.role = 'owner')));
grant select on audit_events to arbe_app;

-- Writes the event of a changed row. Its arguments are: the kind of the subject; the column with the subject's id; the column with
-- its name, empty if the name is in another table; the columns whose changes are no event; the columns whose values the log may
-- have; and optionally, if the row is a part of the subject, the name of that part. It acts as the owner, because nobody else
-- writes the log.
create function audit_change() returns trigger
  language plpgsql security definer set search_path = public, pg_temp as $$
declare
  was     jsonb := to_jsonb(old);
  becomes jsonb := to_jsonb(new);
  r       jsonb := coalesce(becomes, was);
  tenant  text := case tg_table_name when 'houses' then r ->> 'id' when 'agents' then current_house() else r ->> 'house_id' end;
  subject text := tg_argv[0];
  label   text := r ->> tg_argv[2];
  ignored text[] := tg_argv[3];
  plain   text[] := tg_argv[4];
  part    text := tg_argv[5];
  did     text := case tg_op when 'INSERT' then 'created' when 'DELETE' then 'deleted' else 'changed' end;
  how     text := coalesce(current_setting('app.via', true), '');
  diff    jsonb;
begin
  -- The log ends with its house. A key for all houses of a person is in none.
  if not exists (select from houses h where h.id = tenant) then
    return null;
  end if;
  select coalesce(jsonb_object_agg(case f when 'revision' then 'value' else f end,
      case when f = any (plain) then jsonb_build_array(left(was ->> f, 200), left(becomes ->> f, 200)) end), '{}') into diff
    from jsonb_object_keys(r) f
    where f <> all (ignored) and was -> f is distinct from becomes -> f
      and (tg_op = 'UPDATE' or f = any (plain) and f <> tg_argv[2] and coalesce(r ->> f, '') not in ('', '[]', '{}'));
  if tg_op = 'UPDATE' and diff = '{}' then
    return null;
  end if;
  if part is not null then
    did := 'changed';
    diff := jsonb_build_object(part, diff -> plain[1]);
  end if;
  if tg_table_name = 'bots' then
    label := '@' || label;
  elsif subject in ('member', 'bot') then
    select case a.kind when 'bot' then 'bot' else subject end, coalesce('@' || b.handle, a.name) into subject, label
      from agents a left join bots b on b.house_id = tenant and b.agent_id = a.id where a.id = (r ->> tg_argv[1])::uuid;
  elsif subject = 'house' then
    select h.name into label from houses h where h.id = tenant;
  end if;
  insert into audit_events as e (house_id, actor_id, actor_kind, actor_name, via, key_name, action, subject_kind, subject_id, subject_name, changes)
    select tenant, current_agent(), coalesce(a.kind, ''), left(coalesce('@' || b.handle, a.name, ''), 200), convert_from(decode(split_part(how, ':', 1), 'hex'), 'UTF8'),
      convert_from(decode(split_part(how, ':', 2), 'hex'), 'UTF8'), did, subject, r ->> tg_argv[1], left(coalesce(label, ''), 200),
      case did when 'deleted' then '{}' else diff end
    from (select) one left join agents a on a.id = current_agent() left join bots b on b.house_id = tenant and b.agent_id = a.id
  on conflict (house_id, at, xact, subject_kind, subject_id) do update set
    action = case when 'deleted' in (e.action, excluded.action) then 'deleted' when 'created' in (e.action, excluded.action) then 'created' else 'changed' end,
    changes = case when 'deleted' in (e.action, excluded.action) then '{}' else e.changes || excluded.changes end,
    -- The last events of a bot that is deleted no longer find its handle.
    subject_name = case when e.subject_name like '@%' and excluded.subject_name not like '@%' then e.subject_name else excluded.subject_name end;
  return null;
end $$;
revoke execute on function audit_change from public;

create trigger audit after insert or update or delete on houses for each row
  execute function audit_change('house', 'id', 'name', '{created_at,roster,belongs_to,primary_thread_id}', '{name,default_environment_id,default_model,limits,fallback_models,ask}');
create trigger audit after insert or update or delete on members for each row
  execute function audit_change('member', 'agent_id', '', '{joined_at,read_from}', '{role}');
create trigger audit after insert or update or delete on group_roles for each row
  execute function audit_change('member', 'agent_id', '', '{}', '{role}', 'group_role');
create trigger audit after update of name on agents for each row
  execute function audit_change('bot', 'id', '', '{}', '{name}');
create trigger audit after insert or update or delete on bots for each row
  execute function audit_change('bot', 'agent_id', 'handle', '{created_at,updated_at,looks}', '{handle,model,think,ask,limits}');
create trigger audit after insert or update or delete on activation_policies for each row
  execute function audit_change('bot', 'agent_id', '', '{created_at,updated_at}', '{}', 'policies');
create trigger audit after insert or update on invites for each row
  execute function audit_change('invite', 'id', 'note', '{created_at}', '{role,expires_at,used_at,revoked_at}');
create trigger audit_deleted after delete on invites for each row when (old.used_at is null and old.revoked_at is null and old.expires_at > now())
  execute function audit_change('invite', 'id', 'note', '{}', '{}');
create trigger audit after insert or update on api_keys for each row
  execute function audit_change('api_key', 'id', 'name', '{created_at,last_used_at}', '{name,agent_id,expires_at,revoked_at}');
create trigger audit_deleted after delete on api_keys for each row when (old.revoked_at is null and (old.expires_at is null or old.expires_at > now()))
  execute function audit_change('api_key', 'id', 'name', '{}', '{}');
create trigger audit after insert or update or delete on secrets for each row
  execute function audit_change('secret', 'id', 'name', '{created_at,redacted,set_by,set_at,used_at,vault_secret_id}', '{name}');
create trigger audit after update on house_keys for each row
  execute function audit_change('house', 'house_id', '', '{}', '{}', 'secret_key');
create trigger audit after insert or update or delete on environments for each row
  execute function audit_change('environment', 'id', 'name', '{created_at,rebuilds}', '{name}');
create trigger audit after insert or update or delete on model_endpoints for each row
  execute function audit_change('model_endpoint', 'name', 'name', '{created_at,key_made}', '{dialect,secret_name}');
create trigger audit after delete on threads for each row
  execute function audit_change('thread', 'id', 'name', '{}', '{}');
-- The statement names the column only if somebody revokes the tokens. The end of a run changes it, too.
create trigger audit_tokens after update of token_epoch on threads for each row
  execute function audit_change('thread', 'id', 'name', '{updated_at}', '{}', 'tokens');

-- Deletes events of all houses that are older than p_before, and returns how many. It acts as the owner, because no house may
-- delete its log.
create function delete_audit_events(p_before timestamptz, p_most int) returns bigint
  language plpgsql security definer set search_path = public, pg_temp as $$
declare
  deleted bigint;
begin
  delete from audit_events where ctid in (select e.ctid from audit_events e where e.at < p_before order by e.at limit p_most);
  get diagnostics deleted = row_count;
  return deleted;
end $$;
revoke execute on function delete_audit_events from public;
grant execute on function delete_audit_events to arbe_app;

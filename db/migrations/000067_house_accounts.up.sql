-- A house may use a provider with a key of its own, which is one of its secrets. Its boxes are then in its own account there.

alter table sandboxes add column own_account boolean not null default false;
comment on column sandboxes.own_account is 'Whether the machine is in the account of the house''s own key, instead of the operator''s.';

create index secrets_by_name on secrets (name);

-- has_secret reports whether the transaction's house has a secret. It acts as the owner, because the agent who runs a command may be a
-- bot, which sees no secrets.
create function has_secret(p_name text) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select exists (select from public.secrets s where s.house_id = public.current_house() and s.name = p_name)
$$;
revoke execute on function has_secret from public;
grant execute on function has_secret to arbe_app;

-- houses_with_secrets returns which houses have secrets of some names, and no value. It acts as the owner, because a sweep looks at all
-- houses.
create function houses_with_secrets(p_names text[], p_most int) returns table (house_id text, name text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.house_id, s.name from public.secrets s where s.name = any (p_names) order by random() limit p_most
$$;
revoke execute on function houses_with_secrets from public;
grant execute on function houses_with_secrets to arbe_app;

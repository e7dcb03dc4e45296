-- Owner: internal/secret. The secrets of houses, and the keys that seal them.

-- name: AddHouseKey :exec
-- Does nothing if the house has a key.
insert into house_keys (house_id, sealed) values (@house_id, @sealed) on conflict do nothing;

-- name: HouseKeyForShare :one
-- The house's data key. The lock keeps it from being replaced until the transaction ends.
select sealed from house_keys where house_id = @house_id for share;

-- name: HouseKeyForUpdate :one
select sealed from house_keys where house_id = @house_id for update;

-- name: SetHouseKey :exec
update house_keys set sealed = @sealed, created_at = now() where house_id = @house_id;

-- name: CountSecrets :one
-- The number of the house's secrets and their bytes together, except for one name.
select count(*) as secrets, coalesce(sum(length(v.sealed)), 0)::bigint as bytes
from secrets s join sealed_values v on v.house_id = s.house_id and v.id = s.vault_secret_id
where s.house_id = @house_id and s.name <> @except_name;

-- name: GetSecretForUpdate :one
-- Returns no row if the house has no secret of this name.
select s.*, v.sealed from secrets s join sealed_values v on v.house_id = s.house_id and v.id = s.vault_secret_id
where s.house_id = @house_id and s.name = @name for update;

-- name: AddSealedValue :exec
insert into sealed_values (id, house_id, sealed) values (@id, @house_id, @sealed);

-- name: PutSecret :one
-- fresh is true if the secret is new, and false if its value was replaced.
insert into secrets (house_id, name, vault_secret_id, redacted, set_by) values (@house_id, @name, @vault_secret_id, @redacted, sqlc.narg(set_by))
on conflict (house_id, name) do update set
  vault_secret_id = excluded.vault_secret_id, redacted = excluded.redacted, set_by = excluded.set_by, set_at = now(), revision = default
returning (xmax = 0)::boolean as fresh;

-- name: DropSealedValues :exec
-- Deletes the sealed values to which no secret refers.
delete from sealed_values v where v.house_id = @house_id
  and not exists (select from secrets s where s.house_id = v.house_id and s.vault_secret_id = v.id);

-- name: DeleteSecret :execrows
with gone as (delete from secrets s where s.house_id = @house_id and s.name = @name returning s.house_id, s.vault_secret_id)
delete from sealed_values v using gone where v.house_id = gone.house_id and v.id = gone.vault_secret_id;

-- name: ListSecrets :many
select s.id, s.name, s.redacted, s.created_at, s.set_at, s.used_at, coalesce(s.set_by::text, '')::text as set_by, coalesce(a.name, '')::text as set_by_name
from secrets s left join agents a on a.id = s.set_by
where s.house_id = @house_id order by s.name;

-- name: SecretUses :many
-- The environments and model endpoints that use secrets of the house.
select 'environment'::text as kind, e.name::text as name, (b ->> 'name')::text as secret
from environments e cross join lateral jsonb_array_elements(e.secret_bindings) b where e.house_id = @house_id and b ->> 'name' is not null
union all
select 'environment', e.name, g ->> 'secret' from environments e cross join lateral jsonb_path_query(e.config, '$.git[*]') g
where e.house_id = @house_id and g ->> 'secret' is not null
union all
select 'model endpoint', m.name, m.secret_name from model_endpoints m where m.house_id = @house_id and m.secret_name <> ''
order by 1, 2;

-- name: SealedSecrets :many
-- The sealed values of the secrets with the given names, or of all if names is empty, each with the house's data key.
select s.name, s.revision, v.sealed, k.sealed as key
from secrets s join sealed_values v on v.house_id = s.house_id and v.id = s.vault_secret_id join house_keys k on k.house_id = s.house_id
where s.house_id = @house_id and (cardinality(@names::text[]) = 0 or s.name = any(@names::text[]));

-- name: NoteSecretsUsed :exec
-- Writes at most once a minute for each secret, because a busy house uses its secrets all the time.
update secrets set used_at = now() where house_id = @house_id and name = any(@names::text[])
  and (used_at is null or used_at < now() - interval '1 minute');

-- name: SealedAgain :exec
update sealed_values v set sealed = @sealed from secrets s
where s.house_id = v.house_id and s.vault_secret_id = v.id and s.house_id = @house_id and s.name = @name;

-- name: BotAsks :one
-- Whether the transaction's agent is a bot.
select bot_asks()::boolean;

-- Owner: internal/model. The model endpoints that houses add, and the default model of a house.

-- name: ModelOfHouse :one
select default_model from houses where id = @house_id;

-- name: FallbackModels :one
select fallback_models from houses where id = @house_id;

-- name: SetFallbackModels :execrows
update houses set fallback_models = @models where id = @house_id;

-- name: SetDefaultModel :execrows
update houses set default_model = @model where id = @house_id;

-- name: ListModelEndpoints :many
select * from model_endpoints where house_id = @house_id order by created_at, name;

-- name: LockModelEndpoints :exec
-- Lets one transaction at a time change the model endpoints of a house, because the transaction may choose an unused name
-- for a secret.
select pg_advisory_xact_lock(hashtextextended('arbe.model_endpoints/' || @house_id::text, 0));

-- name: PutModelEndpoint :exec
insert into model_endpoints (house_id, name, base_url, dialect, secret_name, key_made) values (@house_id, @name, @base_url, @dialect, @secret_name, @key_made)
on conflict (house_id, name) do update set base_url = excluded.base_url, dialect = excluded.dialect, secret_name = excluded.secret_name, key_made = excluded.key_made;

-- name: DeleteModelEndpoint :exec
delete from model_endpoints where house_id = @house_id and name = @name;

-- name: BotChangesModels :one
-- Whether the transaction's agent is a bot.
select bot_asks()::boolean;

-- name: ModelsOfBots :many
-- The models of the bots of a house; empty for the house's default. Coding agents without a model of their own are left out:
-- every house has them, whether or not anybody delegates to them.
select b.handle, b.model from bots b join agents a on a.id = b.agent_id
where b.house_id = @house_id and (b.model <> '' or a.runtime = 'arbe') order by b.handle collate "C";

-- name: SecretNames :many
select name from secrets where house_id = @house_id order by name;

-- name: EnvironmentsThatBind :many
-- The environments whose commands receive a secret.
select e.name from environments e where e.house_id = @house_id
  and e.secret_bindings @> jsonb_build_array(jsonb_build_object('name', @secret::text)) order by e.name;

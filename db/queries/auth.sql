-- Owner: internal/auth.

-- name: Authenticate :one
select agent_id::uuid as agent_id, coalesce(house_id, '')::text as house_id, credential::text as credential, standing::text as standing
from authenticate(@hash);

-- name: RedeemLoginLink :one
select coalesce(agent_id::text, '')::text as agent_id, outcome::text as outcome
from redeem_login_link(@link, @session, @expires_at);

-- name: PlaceOf :one
select house_id::text as house_id, role::text as role from place_of(@kind, @id, @agent_id::uuid);

-- name: CreateLoginLink :exec
insert into login_links (hash, agent_id, expires_at) values (@hash, @agent_id, @expires_at);

-- name: DeleteSession :exec
delete from login_sessions where hash = @hash;

-- name: CreateAPIKey :exec
insert into api_keys (agent_id, house_id, name, hash) values (@agent_id, sqlc.narg(house_id), @name, @hash);

-- name: RevokeAPIKeys :exec
-- The agent's keys of one name: a program that makes itself a new key ends its old ones.
update api_keys set revoked_at = now() where agent_id = @agent_id and name = @name and revoked_at is null;

-- name: FirstHouses :many
-- The current agent's oldest two houses: enough to tell whether there is only one.
select house_id from members where agent_id = current_agent() order by joined_at, house_id limit 2;

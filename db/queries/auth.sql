-- Owner: internal/auth.

-- name: CredentialsOf :many
select which::bigint as which, agent_id::uuid as agent_id, coalesce(house_id, '')::text as house_id, credential::text as credential, name::text as name,
  status::text as status, (lasts is null)::boolean as lasting, coalesce(lasts, 0)::float8 as lasts
from credentials_of(@hashes::bytea[]);

-- name: TokensOf :many
select which::bigint as which, coalesce(agent_id::text, '')::text as agent_id, coalesce(role, '')::text as role, status::text as status,
  coalesce(maker_joined_at, 'epoch')::timestamptz as maker_joined_at
from tokens_of(@key_ids::text[], @house_ids::text[], @thread_ids::text[], @agent_ids::uuid[], @epochs::bigint[], @joined_at::timestamptz[], @makers::text[]);

-- name: RedeemLoginLink :one
select coalesce(agent_id::text, '')::text as agent_id, outcome::text as outcome
from redeem_login_link(@link, @session, @expires_at);

-- name: MembershipsOf :many
select which::bigint as which, agent_id::uuid as agent_id, house_id::text as house_id, role::text as role, joined_at::timestamptz as joined_at,
  coalesce(thread_id, '')::text as thread_id, coalesce(holder::text, '')::text as holder, coalesce(epoch, 0)::bigint as epoch
from memberships_of(@kinds::text[], @ids::text[], @agent_ids::uuid[]);

-- name: CreateLoginLink :exec
insert into login_links (hash, agent_id, expires_at) values (@hash, @agent_id, @expires_at);

-- name: CreateSession :exec
insert into login_sessions (hash, agent_id, expires_at) values (@hash, @agent_id, @expires_at);

-- name: DeleteSession :exec
delete from login_sessions where hash = @hash;

-- name: ListSessions :many
-- The current agent's sessions that have not ended, newest first.
select id, client, created_at, last_used_at, expires_at, (hash = @hash)::bool as current from login_sessions
where agent_id = current_agent() and expires_at > now() order by created_at desc, id limit 200;

-- name: RevokeSession :execrows
delete from login_sessions where agent_id = current_agent() and id = @id;

-- name: RevokeOtherSessions :execrows
-- Ends the current agent's sessions but the one with this hash.
delete from login_sessions where agent_id = current_agent() and hash <> @hash;

-- name: RecordSessionUse :exec
select note_sessions_used(@hashes::bytea[], @times::timestamptz[], @clients::text[]);

-- name: InsertAPIKey :one
-- Returns no row if the id is already used.
insert into api_keys (id, agent_id, house_id, name, hash, expires_at)
values (@id, @agent_id, sqlc.narg(house_id), @name, @hash, sqlc.narg(expires_at))
on conflict (id) do nothing
returning *;

-- name: ListAPIKeys :many
select * from api_keys
where house_id = @house_id::text and (created_at, id) > (@after_time::timestamptz, @after_id::text)
order by created_at, id
limit @max_rows;

-- name: ListAPIKeysForAllHouses :many
-- The current agent's keys that are valid for all of its houses.
select * from api_keys
where agent_id = current_agent() and house_id is null and (created_at, id) > (@after_time::timestamptz, @after_id::text)
order by created_at, id
limit @max_rows;

-- name: RevokeAPIKeyForAllHouses :execrows
-- Revokes a key of the current agent. A revoked key keeps the time of its first revocation.
update api_keys set revoked_at = coalesce(revoked_at, now())
where id = @id and agent_id = current_agent() and house_id is null;

-- name: RevokeAPIKeyByHash :execrows
-- Revokes the key with this hash, provided that it has this id; an empty id matches every key. A revoked key keeps the time
-- of its first revocation.
update api_keys set revoked_at = coalesce(revoked_at, now())
where hash = @hash and @key_id::text in ('', id);

-- name: RevokeAPIKey :exec
update api_keys set revoked_at = now() where id = @id and revoked_at is null;

-- name: RevokeAPIKeys :exec
-- Revokes the agent's keys of one name. A program that creates a new key for itself thus revokes its old ones.
update api_keys set revoked_at = now() where agent_id = @agent_id and name = @name and revoked_at is null;

-- name: RecordAPIKeyUse :exec
select note_api_keys_used(@hashes::bytea[], @times::timestamptz[]);

-- name: MemberKind :one
select a.kind from members m join agents a on a.id = m.agent_id where m.house_id = @house_id and m.agent_id = @agent_id;

-- name: KeepRole :one
-- The role of a member, locked until the transaction ends. Returns no row if the agent is not in the house.
select role from members where house_id = @house_id and agent_id = @agent_id for share;

-- name: FirstHouses :many
-- The current agent's two oldest houses, enough to see whether it has more than one.
select house_id from members where agent_id = current_agent() order by joined_at, house_id limit 2;

-- name: TokenFacts :one
-- The facts that a thread token states: the thread's token epoch and run, and when the agent joined its house.
select t.token_epoch, t.status, thread_runs(t.status) as runs, t.agent_id, t.run_epoch, m.joined_at from threads t
join members m on m.house_id = t.house_id and m.agent_id = @agent_id
where t.id = @thread_id;

-- name: SigningKeys :many
-- Newest first.
select id, sealed from signing_keys order by created_at desc, id desc;

-- name: LockSigningKeys :exec
select pg_advisory_xact_lock(hashtext('arbe.signing_keys'));

-- name: AddSigningKey :exec
-- Adds the key unless another one is younger than this many seconds.
insert into signing_keys (sealed) select @sealed
where not exists (select from signing_keys where created_at > now() - make_interval(secs => @younger_than::float8));

-- name: DropSigningKeys :exec
-- Deletes the keys that a newer one replaced at least this many seconds ago.
delete from signing_keys k where exists (
  select from signing_keys n where (n.created_at, n.id) > (k.created_at, k.id) and n.created_at <= now() - make_interval(secs => @since::float8));

-- name: UseTicket :one
-- Uses a ticket, and reports whether it was unused.
select use_ticket(@id::text, @expires_at::timestamptz)::boolean;

-- name: LoginIdentityHolder :one
-- Whom an account of a login provider logs in; empty if nobody.
select coalesce(login_identity_of(@issuer::text, @subject::text)::text, '')::text as agent_id;

-- name: SaveLoginIdentity :execrows
-- Notes the account of the current agent, or its present address. Affects no row if the account is somebody else's.
insert into login_identities (issuer, subject, agent_id, email) values (@issuer, @subject, @agent_id, @email)
on conflict (issuer, subject) do update set email = excluded.email where login_identities.agent_id = excluded.agent_id;

-- name: BeginDeviceLogin :one
select begin_device_login(@device, @code, @client::text, @address::text, @expires_at::timestamptz, @most::integer, @most_of_address::integer)::text;

-- name: AnswerDeviceLogin :one
-- The login with a code. With approve it is approved or denied, and without it only looked at.
select outcome::text as outcome, coalesce(client, '')::text as client, coalesce(address, '')::text as address,
  coalesce(created_at, 'epoch')::timestamptz as created_at, coalesce(expires_at, 'epoch')::timestamptz as expires_at
from answer_device_login(@code, sqlc.narg(approve)::boolean, @guesses::integer, make_interval(secs => @guesses_for::float8));

-- name: PollDeviceLogin :one
select coalesce(agent_id::text, '')::text as agent_id, outcome::text as outcome
from poll_device_login(@device, @session, @expires_at, make_interval(secs => @interval::float8));

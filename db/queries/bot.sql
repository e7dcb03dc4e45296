-- Owner: internal/bot. The bots of houses, and the policies that wake them.

-- name: InsertBotAgent :exec
insert into agents (id, kind, runtime, name) values (@id, 'bot', @runtime::text, @name::text);

-- name: InsertBotMember :exec
-- clock_timestamp makes the bot join after whoever created the house in the same transaction.
insert into members (house_id, agent_id, role, joined_at) values (@house_id, @agent_id, 'member', clock_timestamp());

-- name: InsertBot :execrows
-- Affects no row if a bot of the house has this handle or one that looks like it.
insert into bots (house_id, agent_id, handle, instructions, model, think, tools, ask, limits)
values (@house_id, @agent_id, @handle, @instructions, @model, @think, @tools, @ask, @limits)
on conflict (house_id, looks) do nothing;

-- name: GetBot :one
select sqlc.embed(b), coalesce(a.name, '')::text as name, coalesce(a.runtime, '')::text as runtime
from bots b join agents a on a.id = b.agent_id
where b.house_id = @house_id and b.agent_id = @agent_id;

-- name: LockBotMember :exec
-- Taken before the locks on the bot, its policies and the log. The removal of a member locks the log before what belongs to
-- the member, so without this lock the two could deadlock.
select from members where house_id = @house_id and agent_id = @agent_id for update;

-- name: LockBot :one
select sqlc.embed(b), coalesce(a.name, '')::text as name, coalesce(a.runtime, '')::text as runtime
from bots b join agents a on a.id = b.agent_id
where b.house_id = @house_id and b.agent_id = @agent_id
for update of b;

-- name: GetBotByHandle :one
select sqlc.embed(b), coalesce(a.name, '')::text as name, coalesce(a.runtime, '')::text as runtime
from bots b join agents a on a.id = b.agent_id
where b.house_id = @house_id and b.handle = @handle;

-- name: BotLooks :one
-- The bot whose handle looks like the given one, which has the form of bots.looks.
select agent_id, handle from bots where house_id = @house_id and looks = @looks;

-- name: ListBots :many
-- Ordered by handle, after the given handle; an empty handle starts with the first bot.
select sqlc.embed(b), coalesce(a.name, '')::text as name, coalesce(a.runtime, '')::text as runtime
from bots b join agents a on a.id = b.agent_id
where b.house_id = @house_id and b.handle collate "C" > @after_handle::text
order by b.handle collate "C"
limit @max_rows;

-- name: CountBots :one
select count(*) from bots where house_id = @house_id;

-- name: UpdateBot :exec
-- Every column that people may change. The caller has read the row under its lock.
update bots set handle = @handle, instructions = @instructions, model = @model, think = @think, tools = @tools, ask = @ask, limits = @limits
where house_id = @house_id and agent_id = @agent_id;

-- name: RenameBot :exec
update agents set name = @name::text where id = @id;

-- name: BotDoer :one
-- The name of the agent that changes a bot.
select coalesce(name, '')::text as name from agents where id = @id;

-- name: RosterVersion :one
select roster from houses where id = @house_id;

-- name: InsertPolicy :one
insert into activation_policies (house_id, agent_id, name, trigger, config, resource_ids, tool_ids, enabled)
values (@house_id, @agent_id, @name, @trigger, @config, @resource_ids, @tool_ids, @enabled)
returning *;

-- name: UpdatePolicy :one
update activation_policies set name = @name, trigger = @trigger, config = @config, resource_ids = @resource_ids, tool_ids = @tool_ids, enabled = @enabled
where id = @id and house_id = @house_id
returning *;

-- name: PolicyBot :one
select agent_id from activation_policies where id = @id and house_id = @house_id;

-- name: LockPolicy :one
select * from activation_policies where id = @id and house_id = @house_id for update;

-- name: DeletePolicy :exec
delete from activation_policies where id = @id and house_id = @house_id;

-- name: ListPolicies :many
-- The policies of one bot, or of all bots of the house if agent_id is null, oldest first.
select * from activation_policies
where house_id = @house_id and (sqlc.narg(agent_id)::uuid is null or agent_id = sqlc.narg(agent_id))
order by created_at, id;


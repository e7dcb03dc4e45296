-- Owner: internal/house. Houses, their members, and the agents who are members.

-- name: NewID :one
select generate_short_id();

-- name: InsertHouse :exec
insert into houses (id, name) values (@id, @name);

-- name: SetHousePointers :exec
update houses set default_environment_id = sqlc.narg(default_environment_id), primary_thread_id = sqlc.narg(primary_thread_id) where id = @id;

-- name: GetHouse :one
select h.*, coalesce(m.role, '')::text as role from houses h
left join members m on m.house_id = h.id and m.agent_id = current_agent()
where h.id = @id;

-- name: ListHouses :many
-- The houses of the current agent; only_house limits them to one.
select h.*, m.role from houses h
join members m on m.house_id = h.id and m.agent_id = current_agent()
where (h.created_at, h.id) > (@after_time::timestamptz, @after_id::text)
  and (@only_house::text = '' or h.id = @only_house)
order by h.created_at, h.id
limit @max_rows;

-- name: UpdateHouse :execrows
update houses set
  name = coalesce(sqlc.narg(name), name),
  default_environment_id = case when @set_default::bool then sqlc.narg(default_environment_id) else default_environment_id end
where id = @id;

-- name: InsertMember :exec
insert into members (house_id, agent_id, role) values (@house_id, @agent_id, @role);

-- name: ListMembers :many
select a.*, m.role, m.joined_at from members m join agents a on a.id = m.agent_id
where m.house_id = @house_id and (m.joined_at, a.id) > (@after_time::timestamptz, @after_id::uuid)
order by m.joined_at, a.id
limit @max_rows;

-- name: InsertAgent :exec
insert into agents (id, kind, runtime, name) values (@id, @kind, sqlc.narg(runtime), @name);

-- name: GetAgent :one
select * from agents where id = @id;

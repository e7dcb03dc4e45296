-- Owner: internal/relay.

-- name: AskServer :exec
insert into server_calls (id, house_id, question) values (@id, @house, @question);

-- name: ServerQuestion :one
-- Returns no row if the caller no longer waits.
select question from server_calls where id = @id;

-- name: AnswerServer :exec
update server_calls set answer = @answer where id = @id;

-- name: ServerAnswer :one
select answer from server_calls where id = @id;

-- name: EndServerCall :exec
-- Also deletes the calls of servers that were killed while they waited.
delete from server_calls where id = @id or asked_at < now() - interval '10 minutes';

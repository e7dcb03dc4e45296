-- Owner: internal/gateway.

-- name: RootOfThread :one
-- The entry of a person from which a thread follows; empty if a person created the thread.
select coalesce(root, '')::text from threads where id = @id;

-- name: MoneyLacks :one
-- The limit that leaves no room for a call of this cost; empty if there is room.
select money_lacks(@micros, @installation, @person)::text;

-- name: BeginRunCall :one
insert into run_calls (house_id, thread_id, epoch, agent_id, root, model, lapses_at, reserved_micros)
values (@house_id, @thread_id, @epoch, @agent_id, @root, @model, now() + make_interval(secs => @seconds), @reserved_micros)
returning id;

-- name: EndRunCall :exec
-- Records the end of a call, and adds its cost to the day's spending of its house. A repeated call changes nothing.
with ended as (
  update run_calls set ended_at = now(), outcome = @outcome, status = @status, stop = @stop, input = @input, output = @output, cache_read = @cache_read, cache_write = @cache_write,
    cost_micros = @cost_micros, cost_known = @cost_known, estimated = @estimated, charged_micros = @charged_micros, reserved_micros = 0
  where id = @id and ended_at is null
  returning *
)
select add_spending(house_id, thread_id, root, (ended_at at time zone 'utc')::date, charged_micros, case when @own::bool then cost_micros else 0 end, not cost_known)
from ended;

-- name: RunsUsed :many
-- What the ended calls of the given runs of a thread used.
select epoch, coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output, coalesce(sum(cache_read), 0)::bigint as cache_read,
  coalesce(sum(cache_write), 0)::bigint as cache_write, coalesce(sum(cost_micros), 0)::bigint as cost_micros,
  coalesce(bool_or(not cost_known), false)::bool as cost_unknown, count(*)::bigint as calls
from run_calls where house_id = @house_id and thread_id = @thread_id and epoch = any (@epochs::bigint[]) and ended_at is not null
group by epoch;

-- name: LastRunCall :one
-- The call that a run began last. If model is not empty, only the calls of that model count. Returns no row if the run has made
-- no such call.
select * from run_calls where house_id = @house_id and thread_id = @thread_id and epoch = @epoch
  and (@model::text = '' or model = @model::text)
order by id desc limit 1;

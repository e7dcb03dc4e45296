-- Owner: internal/subscription.

-- name: LockSubscriptionStreams :exec
-- Keeps streams from being created while a subscription looks at the existing ones.
select pg_advisory_xact_lock(hashtext('arbe.subscriptions'), hashtext(@house_id));

-- name: InsertSubscription :execrows
insert into subscriptions (house_id, name, spec, base_url, kind, matching, lease)
values (@house_id, @name, @spec, @base_url, @kind, sqlc.narg(matching), interval '1 millisecond' * @lease_ms::bigint)
on conflict (house_id, name) do nothing;

-- name: CountSubscriptions :one
-- The numbers of a house's subscriptions, patterns and explicit links. The caller holds LockSubscriptionStreams.
select count(*) as subscriptions, count(matching) as patterns,
  (select count(*) from subscription_streams l where l.house_id = @house_id and l.explicit) as links
from subscriptions where subscriptions.house_id = @house_id;

-- name: LockSubscription :one
select id, spec, base_url, kind, created_at, generation, coalesce(wake_id, '')::text as wake_id, token_hash,
  (wake_id is not null and holder is not null and lease_until >= now())::bool as held, coalesce(holder, '')::text as holder, attempts
from subscriptions where house_id = @house_id and name = @name for update;

-- name: NameOfSubscription :one
select name from subscriptions where id = @id;

-- name: DeleteSubscription :execrows
delete from subscriptions where house_id = @house_id and name = @name;

-- name: LinkMatching :exec
-- Links the existing streams that match the pattern. The subscription starts at their present ends.
insert into subscription_streams (subscription_id, house_id, stream, matched, acked)
select sub.id, s.house_id, s.name, true, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0)
from subscriptions sub join streams s on s.house_id = sub.house_id and s.name ~ sub.matching
where sub.id = @id and s.deleted_at is null;

-- name: LinkStreams :exec
insert into subscription_streams (subscription_id, house_id, stream, explicit, acked)
select @subscription_id, @house_id, n, true, coalesce((
  select (select max(e.seq) from entries e where e.stream_id = s.id) from streams s where s.house_id = @house_id and s.name = n), 0)
from unnest(@streams::text[]) n
on conflict (subscription_id, stream) do update set explicit = true;

-- name: UnlinkStream :exec
-- A link stays if the pattern also matches the stream. Otherwise it is deleted.
update subscription_streams set explicit = false where subscription_id = @subscription_id and stream = @stream;

-- name: SubscriptionTails :many
select stream::text as stream, explicit::bool as explicit, acked::bigint as acked, tail::bigint as tail
from subscription_tails(@id) order by 1;

-- name: BeginWakes :many
select house_id::text as house_id, id::bigint as id, generation::bigint as generation, failing::bool as failing
from begin_wakes(@most::int, @failing::int, @of_house::int, interval '1 millisecond' * @within_ms::bigint);

-- name: HouseOfWake :one
select coalesce(house_of_wake(@token), '')::text;

-- name: BeginWake :exec
update subscriptions set generation = generation + 1, wake_id = 'w_' || replace(gen_random_uuid()::text, '-', ''), holder = null, token_hash = null
where id = @id;

-- name: HoldWake :exec
-- Sets the holder of a wake, who holds it until the lease ends. A wake without a holder waits to be claimed.
update subscriptions set holder = sqlc.narg(holder), token_hash = sqlc.narg(token_hash),
  lease_until = case when sqlc.narg(holder)::text is null then null else now() + lease end
where id = @id and generation = @generation;

-- name: HoldCall :exec
-- Makes the webhook the holder of the wake while it is called.
update subscriptions set holder = 'webhook', token_hash = @token_hash where id = @id and generation = @generation;

-- name: EndCall :exec
-- Records that the webhook has answered. If it accepted the wake and has not acknowledged it yet, it holds the wake until
-- the lease ends.
update subscriptions set calling_until = null,
  lease_until = case when generation = @generation and kind = 'webhook' and wake_id is not null then now() + lease else lease_until end
where id = @id;

-- name: ExtendWake :exec
update subscriptions set lease_until = now() + lease, attempts = 0 where id = @id;

-- name: EndWake :exec
update subscriptions set wake_id = null, holder = null, token_hash = null, lease_until = null, attempts = 0, next_attempt_at = now()
where id = @id;

-- name: FailWake :exec
-- Records that a delivery failed. The wake begins again after a pause.
update subscriptions set wake_id = null, holder = null, token_hash = null, lease_until = null, attempts = attempts + 1, calling_until = null,
  next_attempt_at = now() + interval '1 millisecond' * @pause_ms::bigint
where id = @id and generation = @generation;

-- name: AckStream :execrows
-- Affects no row if the subscription has no such stream, or if the position is past the stream's end.
update subscription_streams l set acked = greatest(l.acked, @seq)
where l.subscription_id = @subscription_id and l.stream = @stream
  and @seq <= (select max(t.tail) from subscription_tails(@subscription_id) t where t.stream = @stream);

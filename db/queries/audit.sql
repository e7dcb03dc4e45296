-- Owner: internal/house. The log of who changed what in the administration of a house. Triggers write it.

-- name: ListAuditEvents :many
-- Newest first.
select id, at, coalesce(actor_id::text, '')::text as actor_id, actor_kind, actor_name, via, key_name, action, subject_kind, subject_id, subject_name, changes
from audit_events
where house_id = @house_id and (@before_id::text = '' or (at, id) < (@before_time::timestamptz, @before_id::text))
order by at desc, id desc
limit @max_rows;

-- name: DeleteAuditEvents :one
select delete_audit_events(@before, @max_rows)::bigint;

-- The artifacts of one person's houses together, so that more houses are no more room. Row-level security shows a transaction
-- one house only, so a function adds the others up: it returns a number for the person to whom the house belongs, and nothing else.
create function person_artifact_bytes(p_house text) returns bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(sum(b.size), 0)::bigint
  from public.houses h join public.blobs b on b.house_id = h.id
  where (h.id = p_house or h.belongs_to = (select own.belongs_to from public.houses own where own.id = p_house))
    and exists (select from public.artifacts a where a.blob_id = b.id)
$$;
revoke all on function person_artifact_bytes from public;
grant execute on function person_artifact_bytes to arbe_app;

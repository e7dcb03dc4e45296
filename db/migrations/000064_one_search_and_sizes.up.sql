-- find_entries without filters finds what search_entries found. The indexes begin as unique indexes of their tables do, which serve
-- the same queries.

drop function if exists search_entries;

drop index if exists environments_house_id_idx, sandboxes_house_id_idx, sealed_values_house_id_idx, secrets_house_id_idx, threads_house_id_idx1,
  api_keys_house_id_idx;

-- artifact_bytes returns the bytes of all houses' artifacts, each content of a house once. It acts as the owner, because it says
-- nothing of a single house.
create function artifact_bytes() returns bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(sum(b.size), 0)::bigint from public.blobs b
$$;
revoke execute on function artifact_bytes from public;
grant execute on function artifact_bytes to arbe_app;

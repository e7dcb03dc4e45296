create or replace function inherited_entries(p_stream bigint, p_ids text[]) returns setof entries
  language sql stable set search_path = public, pg_temp as $$
  select e.* from lineage(p_stream) l join entries e on e.stream_id = l.id and e.id = any (p_ids) and e.seq >= l.first and e.seq < l.before
    where l.id <> p_stream
$$;

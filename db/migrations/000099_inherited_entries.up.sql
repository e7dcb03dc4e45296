-- inherited_entries finds inherited entries by id in the streams that a fork comes from. It leaves out the last
-- inherited entry, because the fork has a copy of it. Every look for an entry that does not exist ends here, and most
-- streams are no forks. A function in SQL would be planned, over all partitions, at every call. The plan is generic and by
-- index, because few entries match and the planner does not know it.
create or replace function inherited_entries(p_stream bigint, p_ids text[]) returns setof entries
  language plpgsql stable set search_path = public, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  if not exists (select from streams where id = p_stream and source_id is not null) then
    return;
  end if;
  return query
    select e.* from lineage(p_stream) l join entries e on e.stream_id = l.id and e.id = any (p_ids) and e.seq >= l.first and e.seq < l.before
      where l.id <> p_stream;
end $$;

create or replace function said_text(p_type text, p_payload json) returns text language plpgsql immutable
  set search_path = pg_catalog, pg_temp as $$
begin
  return left(btrim(regexp_replace(left(case p_type
    when 'command' then '$ ' || coalesce(p_payload ->> 'command',
      (select string_agg(word, ' ' order by n) from json_array_elements_text(p_payload -> 'argv') with ordinality a (word, n)))
    else p_payload ->> 'text'
  end, 400), '\s+', ' ', 'g')), 160);
exception when others then
  return null;
end $$;

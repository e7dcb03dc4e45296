-- A chat without a text is shown by the names of its files.
create or replace function said_text(p_type text, p_payload json) returns text language plpgsql immutable
  set search_path = pg_catalog, pg_temp as $$
begin
  return left(btrim(regexp_replace(left(case p_type
    when 'command' then '$ ' || coalesce(p_payload ->> 'command',
      (select string_agg(word, ' ' order by n) from json_array_elements_text(p_payload -> 'argv') with ordinality a (word, n)))
    else coalesce(nullif(btrim(left(p_payload ->> 'text', 400), E' \t\r\n'), ''),
      (select string_agg('[file: ' || coalesce(file ->> 'name', file ->> 'artifact_id') || ']', ' ' order by n)
        from json_array_elements(p_payload -> 'attachments') with ordinality a (file, n)))
  end, 400), '\s+', ' ', 'g')), 160);
exception when others then
  return null;
end $$;

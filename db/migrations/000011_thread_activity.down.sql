create or replace function touch_threads(p_streams bigint[]) returns setof bigint
  language sql volatile security definer set search_path = public, pg_temp as $$
  with stale as (
    select t.id, s.id as stream, e.ts from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (select ts from entries where stream_id = s.id order by seq desc limit 1) e
      where s.id = any (p_streams) and t.active_at < e.ts
  ), locked as (
    select id from threads where id in (select id from stale) for no key update skip locked
  ), touched as (
    update threads t set active_at = stale.ts from stale
      where t.id = stale.id and t.id in (select id from locked) and t.active_at < stale.ts
  )
  select stream from stale where id not in (select id from locked)
$$;

drop function said_text;
alter table threads
  drop column last_said_by,
  drop column last_said,
  drop column running_id,
  drop column running_since;

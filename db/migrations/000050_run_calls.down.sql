create or replace function reserve_call(p_turn text, p_micros bigint, p_installation bigint, p_person bigint) returns text
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  used record;
begin
  perform pg_advisory_xact_lock(hashtext('arbe.money'));
  update turns set reserved_micros = 0 where id = p_turn and house_id = current_house() and reserved_micros > 0;
  select * into used from charged_today();
  if used.installation >= p_installation or p_micros > p_installation - used.installation then
    return 'installation';
  elsif used.person >= p_person or p_micros > p_person - used.person then
    return 'person';
  end if;
  update turns set reserved_micros = p_micros where id = p_turn and house_id = current_house() and ended_at is null;
  return '';
end $$;
drop function money_lacks;
create or replace function charged_today() returns table (installation bigint, person bigint, reserved bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with used as (
    select s.house_id, s.charged_micros as micros, 0::bigint as reserved from public.spending s where s.day = (now() at time zone 'utc')::date
    union all
    select t.house_id, t.reserved_micros, t.reserved_micros from public.turns t where t.ended_at is null and t.reserved_micros > 0
  )
  select coalesce(sum(u.micros), 0)::bigint,
    coalesce(sum(u.micros) filter (where h.id = public.current_house()
      or h.belongs_to = (select own.belongs_to from public.houses own where own.id = public.current_house())), 0)::bigint,
    coalesce(sum(u.reserved), 0)::bigint
  from used u join public.houses h on h.id = u.house_id
$$;
comment on table spending is 'What the models of a thread cost in a day (UTC): the sums of model_calls. It outlives the thread, because the house''s limits count it.';
drop table run_calls;

-- A call of a model begins only if what it may cost fits into what is left of the installation's and the person's money, also
-- if no other call is in progress. Otherwise each turn that is alone could exceed them by a whole call.
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

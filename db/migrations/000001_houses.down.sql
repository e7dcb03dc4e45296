drop table sealed_settings, installation;
drop function bot_asks;
drop table members, houses, agents cascade; -- with policies, which name several of them
drop function house_standing, houses_beside, persons_of, house_belongs, notify_change, set_updated_at, generate_short_id,
  current_agent, current_house;
revoke usage on schema public from arbe_app; -- the role itself may serve other databases

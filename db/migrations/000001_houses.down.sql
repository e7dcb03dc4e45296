drop table sealed_settings, installation;
drop table houses, agents, members, environments, secrets, sandboxes, threads, machines cascade;
drop function set_updated_at, generate_short_id, current_agent, current_house;
revoke usage on schema public from arbe_app; -- the role itself may serve other databases

drop trigger agent_renamed on agents;
drop trigger raise_roster on members;
drop policy renamed on agents;
revoke update (name) on agents from arbe_app;
drop table activation_policies, bots;
drop function agent_renamed, raise_roster;

-- The bots that it made remain members.
drop policy renamed on agents;
revoke update (name) on agents from arbe_app;
drop trigger agent_renamed on agents;
drop function agent_renamed;
drop table activation_policies, bots;
drop function raise_roster;
alter table houses drop column limits, drop column roster;

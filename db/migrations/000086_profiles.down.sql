drop policy own_name on agents;
revoke update (unnamed) on agents from arbe_app;
alter table agents drop column unnamed;

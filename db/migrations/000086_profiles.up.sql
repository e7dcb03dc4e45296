alter table agents add column unnamed boolean not null default false;
comment on column agents.unnamed is
  'Whether arbe made up the name of a person, because nobody has said one. Pages then ask for it.';

-- The person of an installation's first start.
update agents set unnamed = true where kind = 'human' and name = 'Owner';

-- People name themselves. Nobody names another person.
create policy own_name on agents for update to arbe_app using (kind = 'human' and id = current_agent());
grant update (unnamed) on agents to arbe_app;

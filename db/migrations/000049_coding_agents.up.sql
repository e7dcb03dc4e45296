-- The runtime of a bot says who does its work: arbe, in the server, or a coding agent in a sandbox. Until now every bot's turns
-- ran in the server, whatever its runtime said.

comment on column agents.runtime is 'Who does the work of a bot: arbe, whose turns run in the server, or a coding agent that runs in a sandbox: pi, codex, claude-code. Null for people.';
update agents set runtime = 'arbe' where kind = 'bot';

-- Every house has a bot for each coding agent, unless it has one whose handle looks the same. They have no policies: a task is
-- delegated to them, and what is said wakes them only in the threads that they drive.
do $$
declare
  coder record;
begin
  for coder in
    select h.id as house_id, gen_random_uuid() as agent_id, d.handle, d.name, d.runtime
      from houses h cross join (values ('pi', 'pi', 'pi'), ('codex', 'codex', 'codex'), ('claude', 'claude', 'claude-code')) d (handle, name, runtime)
      where not exists (select from bots b where b.house_id = h.id
        and b.looks = replace(replace(translate(d.handle, '01-', 'ol'), 'rn', 'm'), 'vv', 'w'))
  loop
    insert into agents (id, kind, runtime, name) values (coder.agent_id, 'bot', coder.runtime, coder.name);
    insert into members (house_id, agent_id, role, joined_at) values (coder.house_id, coder.agent_id, 'member', clock_timestamp());
    insert into bots (house_id, agent_id, handle, tools) values (coder.house_id, coder.agent_id, coder.handle, '{}');
  end loop;
end $$;

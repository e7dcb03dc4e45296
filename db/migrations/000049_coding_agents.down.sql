-- The bots of coding agents stay, because threads may be theirs.
comment on column agents.runtime is null;
update agents set runtime = 'pi' where kind = 'bot' and runtime = 'arbe';

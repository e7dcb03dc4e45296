-- Bots that run commands may read and stop them.
update bots set tools = tools || '{read_command,stop_command}' where 'run_command' = any (tools) and not 'read_command' = any (tools);

-- Bots that may read threads may read the artifacts that these mention.
update bots set tools = array_append(tools, 'read_artifact') where 'read_thread' = any (tools) and not 'read_artifact' = any (tools);

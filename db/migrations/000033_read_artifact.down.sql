update bots set tools = array_remove(tools, 'read_artifact');

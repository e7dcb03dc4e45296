update bots set tools = array(select t from unnest(tools) t where t not in ('read_command', 'stop_command'));

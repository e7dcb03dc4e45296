update bots set tools = array(select t from unnest(tools) t where t not in ('read_file', 'write_file', 'edit_file', 'search_files'));
drop table file_edits;

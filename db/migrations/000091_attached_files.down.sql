drop table placed_files;
drop table attached_files;

alter table houses drop constraint houses_id_default_environment_id_fkey;
drop table machines, sandboxes, environments;

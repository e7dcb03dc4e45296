drop table house_disks;
alter table sandbox_trees drop column disk_bytes;

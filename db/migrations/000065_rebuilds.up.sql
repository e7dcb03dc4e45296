-- How often an environment was to be built again from the beginning, which makes what was cached of it unusable.
alter table environments add column rebuilds integer not null default 0;

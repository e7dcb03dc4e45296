-- How much of their machines' disks houses take up, for lists and pages.

alter table sandbox_trees add column disk_bytes bigint not null default 0;
comment on column sandbox_trees.disk_bytes is 'How much of its machine''s disk it took up when that was last measured; 0 if it is not known.';

create table house_disks (
  house_id     text not null references houses (id) on delete cascade,
  machine_id   text not null,
  cached_bytes bigint not null,
  most_bytes   bigint not null,
  measured_at  timestamptz not null default now(),
  primary key (house_id, machine_id)
) with (fillfactor = 50); -- so that an update stays in its page
comment on table house_disks is 'What houses have on the disks of machines. A row that is not measured again soon is out of date.';
comment on column house_disks.cached_bytes is 'What the cached environments of the house take up there.';
comment on column house_disks.most_bytes is 'What the house may take up there, sandboxes included; 0 for no limit.';
alter table house_disks enable row level security;
create policy tenant on house_disks to arbe_app using (house_id = current_house());
grant select, insert, update on house_disks to arbe_app;

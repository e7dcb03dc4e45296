drop index houses_by_age;
drop index houses_by_primary_thread;

drop function notify_permission cascade; -- with its triggers
drop function memberships_of;

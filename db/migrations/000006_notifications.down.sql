drop function notify_permission, notify_change cascade; -- with their triggers
drop function memberships_of, touch_threads, repair_thread_activity;

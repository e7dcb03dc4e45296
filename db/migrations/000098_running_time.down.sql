drop function count_running_time;
drop function add_running_time;
drop table sandbox_spending;
alter table sandbox_trees drop column running_seen_at, drop column hourly_micros, drop column running_ms, drop column unpriced_ms, drop column cost_nanos;

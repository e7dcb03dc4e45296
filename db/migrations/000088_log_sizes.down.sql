drop function drop_expired;
drop index expired_at;
drop function log_bytes;
drop function measure_logs;
drop table log_sizes;

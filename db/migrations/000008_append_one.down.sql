comment on table entries is 'The records of all logs. Written by append_entries and append_batch alone; deleted only with their stream.';
drop function append_one;

drop table server_calls;

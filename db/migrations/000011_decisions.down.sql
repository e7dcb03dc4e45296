drop table server_calls, servers;
drop trigger begin_decisions on threads;
drop function decide_idle, chats_between, undecided_after, undecided, begin_decisions;
drop table decisions;

drop trigger begin_decisions on threads;
drop function undecided, undecided_after, decide_idle, begin_decisions;
drop table decisions, servers;

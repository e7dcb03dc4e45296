drop trigger notice_run on threads;
drop trigger notice_turn on turns;
drop function notice_run, notice_turn, end_of_thread, add_notices, notice;
drop table notices, readings;

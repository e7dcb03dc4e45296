drop table thread_summaries, file_edits, approvals;
drop function waiting_turns, active_turns;
drop table turns;

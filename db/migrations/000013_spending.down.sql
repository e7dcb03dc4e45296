drop function reserve_call, money_lacks, charged_today;
drop table spending, run_calls, model_calls;

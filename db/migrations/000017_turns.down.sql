drop table model_calls;
drop table turns;

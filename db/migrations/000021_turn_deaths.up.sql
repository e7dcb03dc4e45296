alter table turns add column deaths int not null default 0 check (deaths >= 0);
comment on column turns.deaths is 'How many servers began to work on the next step and have not come back from it: those that died, and the one that works on it.';

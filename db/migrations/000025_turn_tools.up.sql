alter table turns add column tools text[];
comment on column turns.tools is 'The tools that the turn may use, of those that its bot has: those of all policies that passed it an entry; null for all.';

drop view thread_heads;
comment on column turns.asked_seqs is 'The positions of those entries.';

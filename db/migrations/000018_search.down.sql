drop function index_entries(bigint[], bigint[], bigint[]);
drop function words_of(text, json);
drop table entry_words;

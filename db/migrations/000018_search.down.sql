drop function index_older(int);
drop function search_entries(text, int);
drop function index_entries(bigint[], bigint[], bigint[]);
drop function house_word(text);
drop function words_of(text, json);
alter table decisions drop column unindexed;
drop table entry_words;

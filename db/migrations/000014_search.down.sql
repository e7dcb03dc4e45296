drop function if exists search_entries;
drop function find_entries, unindexed_after, index_next, index_entries, house_word, words_of;
drop table search_cursors, entry_words;

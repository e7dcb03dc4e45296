drop function add_spending(text, text, text, date, bigint, bigint, boolean);
drop table member_spending;
drop trigger set_tree on spending;
drop function set_tree;
alter table spending drop tree_id;
drop function person_of_root(text);
drop function tree_of(text);

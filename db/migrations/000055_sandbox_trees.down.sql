drop function spare_sandboxes, unsaved_sandboxes;
drop table sandbox_trees;
alter table sandboxes drop column replaces, drop column replaces_for;

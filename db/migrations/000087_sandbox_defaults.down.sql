alter table sandboxes drop column defaults;

alter table environments drop column rebuilds;

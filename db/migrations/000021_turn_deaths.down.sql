alter table turns drop column deaths;

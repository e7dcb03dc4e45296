alter table turns drop column tools;

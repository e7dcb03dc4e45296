alter table turns drop column asked_think;
alter table bots drop column think;

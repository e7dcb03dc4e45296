alter table turns drop column fallback, drop column own_after;
alter table houses drop column fallback_models;

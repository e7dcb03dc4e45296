drop function houses_with_secrets;
drop function has_secret;
drop index secrets_by_name;
alter table sandboxes drop column own_account;

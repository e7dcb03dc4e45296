alter table houses drop column default_model;
drop table model_endpoints;
delete from secrets; -- their values go with sealed_values
drop policy tenant on secrets;
create policy tenant on secrets to arbe_app using (house_id = current_house());
alter table secrets
  drop constraint secrets_name_check,
  drop constraint secrets_house_id_vault_secret_id_fkey,
  drop column redacted, drop column set_by, drop column set_at, drop column used_at, drop column revision;
drop index if exists secrets_house_id_vault_secret_id_idx;
drop table sealed_values, house_keys;
drop function bot_asks;
comment on column secrets.vault_secret_id is null;

alter table houses add column fallback_models text[] not null default '{}' check (cardinality(fallback_models) <= 5);
comment on column houses.fallback_models is 'The models that its bots ask, in this order, while the provider of their own does not answer, as provider/model.';

alter table turns
  add column fallback text not null default '',
  add column own_after timestamptz;
comment on column turns.fallback is 'The fallback model that the turn asks in place of its bot''s; empty for the bot''s.';
comment on column turns.own_after is 'Before when the provider of the bot''s own model does not want to be asked.';

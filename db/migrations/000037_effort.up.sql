-- How hard models think: for a bot, and for what one entry asks.

alter table bots add column think text not null default '' check (think in ('', 'off', 'low', 'medium', 'high'));
comment on column bots.think is 'How hard its model thinks; empty for what the provider does.';
grant insert (think), update (think) on bots to arbe_app;

alter table turns add column asked_think jsonb not null default '{}' check (jsonb_typeof(asked_think) = 'object');
comment on column turns.asked_think is 'How hard the model thinks for entries of asked, by their ids, as the people who wrote them said. One that is not there says nothing.';

alter table turns
  add column waits int not null default 0 check (waits >= 0),
  add column tries int not null default 0 check (tries >= 0),
  add column failing_since timestamptz,
  add column failure text not null default '',
  add column failure_kind text not null default '';
comment on column turns.waits is 'How often the next step was left and begun again because the model''s provider did not answer.';
comment on column turns.tries is 'How often the model was asked for the next step in vain.';
comment on column turns.failing_since is 'Since when its provider does not answer; null if it does.';
comment on column turns.failure is 'Why, in a few words; failure_kind says it in one.';
comment on column turns.due_at is 'When a delayed turn decides whether it begins, or a turn that waits for its model''s provider asks again.';

alter table model_endpoints drop column dialect;
comment on table model_endpoints is 'Servers with models that a house added, which speak OpenAI''s chat/completions.';

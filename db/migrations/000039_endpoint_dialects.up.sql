-- A server with models that a house adds says which protocol it speaks.

alter table model_endpoints add column dialect text not null default 'chat' check (dialect in ('chat', 'messages', 'responses', 'gemini'));
comment on table model_endpoints is 'Servers with models that a house added.';
comment on column model_endpoints.dialect is 'The protocol that the server speaks: OpenAI''s chat/completions, Anthropic''s messages, OpenAI''s responses, or Gemini''s.';

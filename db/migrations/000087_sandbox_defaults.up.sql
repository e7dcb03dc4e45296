-- What a repository says about the use of its sandboxes, in its arbe.json or devcontainer.json.

alter table sandboxes add column defaults jsonb not null default '{}';
comment on column sandboxes.defaults is 'The start script, directory and variables that the repository itself gives, as of the creation of the sandbox.';

drop trigger end_tokens on threads;
drop function redeem_login_link, credentials_of, tokens_of, note_api_keys_used, end_thread_tokens, thread_runs;
drop table api_keys, login_sessions, login_links, signing_keys;

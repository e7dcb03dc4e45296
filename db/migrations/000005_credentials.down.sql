drop function invite_of, note_api_keys_used, tokens_of, credentials_of, redeem_login_link;
drop trigger end_tokens on threads;
drop trigger revoke_keys_of_demoted on members;
drop trigger revoke_keys on members;
drop function end_thread_tokens, revoke_keys_of_maker;
drop table invites, signing_keys, login_links, login_sessions, api_keys;

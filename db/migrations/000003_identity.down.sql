drop function place_of, redeem_login_link, authenticate;
drop table sealed_settings, login_links, login_sessions, api_keys;

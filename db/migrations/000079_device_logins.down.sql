drop function poll_device_login;
drop function answer_device_login;
drop function begin_device_login;
drop table device_login_guesses;
drop table device_logins;

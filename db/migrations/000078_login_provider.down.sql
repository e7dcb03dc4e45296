drop table group_roles;
drop function login_identity_of;
drop table login_identities;

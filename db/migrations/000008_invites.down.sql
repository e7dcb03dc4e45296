drop function invite_of;
drop table invites;

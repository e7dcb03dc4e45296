drop function use_ticket;
drop table used_tickets;

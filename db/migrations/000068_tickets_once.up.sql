-- The address of a preview has a ticket, which is worth something for a minute. Now it is so once.

create table used_tickets (
  id text primary key,
  expires_at timestamptz not null
);
comment on table used_tickets is 'Tickets that were used, until they expire. They belong to no house.';
create index used_tickets_expires_at_idx on used_tickets (expires_at);
alter table used_tickets enable row level security;

-- use_ticket reports whether a ticket was not used before, and notes that it is. It acts as the owner, because nobody else has to do with
-- tickets. It drops some that expired long ago, so that there are never many.
create function use_ticket(p_id text, p_expires_at timestamptz) returns boolean
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from public.used_tickets where id in (select t.id from public.used_tickets t where t.expires_at < now() - interval '1 hour' order by t.expires_at limit 10 for update skip locked);
  insert into public.used_tickets (id, expires_at) values (p_id, p_expires_at) on conflict do nothing;
  return found;
end $$;
revoke execute on function use_ticket from public;
grant execute on function use_ticket to arbe_app;

-- append_one is append_batch for a batch of one entry whose place is known: what a lone writer waits for. It
-- returns when the entry happened, or null when nothing was written: someone has the stream locked, or
-- something is wrong that append_batch will tell. A p_seq that is not the next one breaks the primary key, an
-- id that is there the other one.
--
-- It promises and checks what append_batch does, in one statement: each one more would cost a lone writer a
-- tenth of the commit that it waits for. Who locks the stream after another writer has a p_seq that is taken.
create function append_one(
  p_stream bigint, p_house text, p_seq bigint, p_id text, p_author uuid, p_type text, p_payload json
) returns timestamptz language plpgsql volatile security definer set search_path = public, pg_temp as $$
declare
  happened timestamptz;
  told text;
begin
  if current_house() is not null then
    raise exception 'a batch is not written in the name of a house' using errcode = 'insufficient_privilege';
  end if;

  insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
  select p_stream, p_seq, p_house, p_id, p_author, p_type, p_payload, clock_timestamp()
    from (
      select from streams where id = p_stream and house_id = p_house and closed_at is null
        and (p_author is null or exists (select from members m where m.house_id = p_house and m.agent_id = p_author))
        and (source_id is null or not exists (select from inherited_entries(p_stream, array[p_id])))
        for no key update skip locked
    ) locked
  returning ts into happened;

  if happened is not null then
    told := pg_notify('arbe_stream', p_stream || ':' || p_seq); -- PERFORM would make it a statement
  end if;
  return happened;
end $$;
revoke execute on function append_one from public;
grant execute on function append_one to arbe_app;

comment on table entries is 'The records of all logs. Written by append_entries, append_batch and append_one alone; deleted only with their stream.';

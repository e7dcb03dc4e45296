-- A search for words that many entries have no longer reads all of them.
create index entry_words_newest on entry_words (house_id, ts desc, stream_id desc, seq desc);

create or replace FUNCTION public.find_entries(p_words text, p_from text, p_in text, p_types text[], p_failed boolean, p_after timestamp with time zone, p_before timestamp with time zone, p_most integer) RETURNS TABLE(thread_id text, thread_name text, seq bigint, id text, type text, author text, author_name text, author_kind text, payload json, ts timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
declare
  house   constant text := public.current_house();
  wanted  tsquery := to_tsquery('simple', p_words);
  authors uuid[];
  threads text[];
  me      constant uuid := public.current_agent();
  newest  timestamptz;
  streams bigint[];
  seqs    bigint[];
begin
  if house is null or numnode(wanted) = 0 then -- nothing but the house's word would be all of the house
    return;
  end if;
  wanted := quote_literal(public.house_word(house))::tsquery && wanted;
  if p_from <> '' then
    authors := array(select m.agent_id from public.members m join public.agents a on a.id = m.agent_id
      left join public.bots b on b.house_id = m.house_id and b.agent_id = m.agent_id
      where m.house_id = house and case p_from when 'me' then m.agent_id = public.current_agent()
        else lower(p_from) in (lower(a.name), split_part(lower(a.name), ' ', 1), replace(lower(a.name), ' ', '-'), b.handle, m.agent_id::text) end);
  end if;
  if p_in <> '' then
    threads := array(select t.id from public.threads t
      where t.house_id = house and (t.id = p_in or lower(t.name) = lower(p_in) or length(p_in) >= 4 and starts_with(t.id, p_in)) limit 100);
  end if;
  -- The index of words returns all entries that have a word. So the newest entries are read first: a word that many have is found among
  -- them, and of any other word the index returns few.
  select f.ts into newest from public.entry_words f where f.house_id = house and (p_before is null or f.ts < p_before)
    order by f.ts desc, f.stream_id desc, f.seq desc offset 5000 limit 1;
  for pass in (case when newest is null then 2 else 1 end)..2 loop
    select array_agg(w.stream_id), array_agg(w.seq) into streams, seqs from (
      select f.stream_id, f.seq from public.entry_words f
        where f.words @@ wanted and (pass = 2 or f.house_id = house and f.ts >= newest)
          and (threads is null or f.house_id = house and f.thread_id = any (threads))
          and (f.thread_id = p_in or not exists (select from public.threads d where d.id = f.thread_id and d.people is not null and not coalesce(me = any (d.people), false)))
          and (p_after is null or f.ts >= p_after) and (p_before is null or f.ts < p_before)
          and (authors is null and p_types is null and not p_failed or exists (
            select from public.entries x left join public.agents s on s.id = x.author_agent_id
              where x.stream_id = f.stream_id and x.seq = f.seq and (authors is null or x.author_agent_id = any (authors))
                and (p_types is null or case x.type when 'command' then 'command' when 'command_result' then 'output'
                  else case s.kind when 'bot' then 'answer' else 'message' end end = any (p_types))
                and (not p_failed or x.type = 'command_result' and coalesce(x.payload ->> 'exit_code', '') <> '0')))
        order by f.ts desc, f.stream_id desc, f.seq desc limit p_most
    ) w;
    exit when cardinality(streams) >= p_most;
  end loop;
  return query
    select w.thread_id, coalesce(t.name, ''), w.seq, e.id, e.type, coalesce(e.author_agent_id::text, ''), coalesce(a.name, ''), coalesce(a.kind, ''), case when c.text is null then e.payload else public.chat_of(c.text) end, w.ts
      from unnest(streams, seqs) f (stream_id, seq)
        join public.entry_words w on w.stream_id = f.stream_id and w.seq = f.seq
        -- The word of the house keeps others' entries out already; this would, too.
        join public.entries e on e.stream_id = w.stream_id and e.seq = w.seq and e.house_id = house
        join public.threads t on t.house_id = house and t.id = w.thread_id
        left join public.agents a on a.id = e.author_agent_id
        left join public.chat_edits c on c.stream_id = w.stream_id and c.seq = w.seq
      order by w.ts desc, w.stream_id desc, w.seq desc;
end $$;

-- Functions that are called for each request, message and turn keep their plans. Postgres plans the statement of a function in SQL again at
-- each call, unless it can put the statement into its caller's, which it cannot if the function has its owner's rights or settings. A
-- function in PL/pgSQL keeps the plan for the session. Making plans was half of the processor time that a question cost.
--
-- A kept plan is for any parameters, as it was before. It may be from a time when a table was small, so functions that read large tables
-- use indexes only.

create or replace function charged_today()
  returns table(installation bigint, person bigint, reserved bigint)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  with used as (
    select s.house_id, s.charged_micros as micros, 0::bigint as reserved from public.spending s where s.day = (now() at time zone 'utc')::date
    union all
    select t.house_id, t.reserved_micros, t.reserved_micros from public.turns t where t.ended_at is null and t.reserved_micros > 0
    union all
    select r.house_id, r.reserved_micros, r.reserved_micros from public.run_calls r where r.ended_at is null and r.lapses_at > now() and r.reserved_micros > 0
  )
  select coalesce(sum(u.micros), 0)::bigint,
    coalesce(sum(u.micros) filter (where h.id = public.current_house()
      or h.belongs_to = (select own.belongs_to from public.houses own where own.id = public.current_house())), 0)::bigint,
    coalesce(sum(u.reserved), 0)::bigint
  from used u join public.houses h on h.id = u.house_id;
end $$;

create or replace function chats_between(p_stream bigint, p_behind bigint, p_upto bigint, p_handles text[], p_most integer)
  returns table(seq bigint, id text, author text, payload json, ts timestamp with time zone)
  language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select e.seq, e.id, e.author_agent_id::text, e.payload, e.ts from public.entries e
    where e.stream_id = p_stream and e.seq > p_behind and e.seq <= p_upto and e.type = 'chat' and e.author_agent_id is not null
      -- A handle is ASCII, in any case. JSON has its characters, and those of names, as they are, or escaped as \u00... The answers
      -- of bots, which have a turn, are replies to what asked for them.
      and (p_handles is null or e.payload::text like '%\\u00%' or e.payload::text like '%"reply_to"%' and e.payload::text not like '%"turn"%'
        or e.payload::text like '%@%' and lower(e.payload::text collate "C") like any (array(select '%@' || h || '%' from unnest(p_handles) h)))
    order by e.seq limit p_most;
end $$;

create or replace function credentials_of(p_hashes bytea[])
  returns table(which bigint, agent_id uuid, house_id text, credential text, name text, status text, lasts double precision)
  language plpgsql stable security definer set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select h.which, c.agent_id, c.house_id, c.credential, c.name, case when c.revoked then 'revoked' when c.expires_at <= now() then 'expired' else 'ok' end,
      extract(epoch from least(c.expires_at, now() + interval '1 year') - now())::float8 -- least() handles infinity
    from unnest(p_hashes) with ordinality h (hash, which)
    cross join lateral (
      select s.agent_id, null as house_id, 'session' as credential, '' as name, s.expires_at, false as revoked from login_sessions s where s.hash = h.hash
      union all
      select k.agent_id, k.house_id, 'api_key', k.name, k.expires_at, k.revoked_at is not null from api_keys k where k.hash = h.hash
    ) c;
end $$;

create or replace function end_of_thread(p_house text, p_thread text)
  returns bigint
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return (
    select coalesce((select max(e.seq) from public.entries e where e.stream_id = s.id), 0)
      from public.threads t join public.streams s on s.house_id = t.house_id and s.name = t.stream_id
      where t.house_id = p_house and t.id = p_thread
  );
end $$;

create or replace function index_entries(p_streams bigint[], p_from bigint[], p_to bigint[])
  returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  insert into public.entry_words (house_id, thread_id, stream_id, seq, ts, words)
  select d.house_id, d.thread_id, e.stream_id, e.seq, e.ts, array_to_tsvector(array[public.house_word(d.house_id)]) || w.words
    from unnest(p_streams, p_from, p_to) m (stream_id, behind, upto)
      join public.decisions d on d.stream_id = m.stream_id
        and (public.current_house() is null or d.house_id = public.current_house())
      join public.entries e on e.stream_id = m.stream_id and e.seq > m.behind and e.seq <= m.upto,
      lateral (
        select public.words_of(e.type, case when c.seq is null then e.payload else public.chat_of(c.text) end) as words
          from (select) one left join public.chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq and e.type = 'chat'
      ) w
    where e.type in ('chat', 'command', 'command_result') and w.words is not null
  on conflict (stream_id, seq) do nothing;
end $$;

create or replace function memberships_of(p_kinds text[], p_ids text[], p_agents uuid[])
  returns table(which bigint, agent_id uuid, house_id text, role text, joined_at timestamp with time zone, thread_id text, holder uuid, epoch bigint)
  language plpgsql stable security definer set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select q.which, m.agent_id, m.house_id, m.role, m.joined_at, p.thread_id, p.holder, p.epoch
    from unnest(p_kinds, p_ids, p_agents) with ordinality q (kind, id, agent, which)
    cross join lateral (
      select q.id as house_id, null as thread_id, null::uuid as holder, null::bigint as epoch where q.kind = 'house'
      union all
      select house_id, null, null, case when thread_runs(status) then token_epoch end from threads where q.kind = 'thread' and id = q.id
      union all
      select house_id, null, null, null from environments where q.kind = 'environment' and id = q.id
      union all
      select house_id, null, null, null from sandboxes where q.kind = 'sandbox' and id = q.id
      union all
      select house_id, thread_id, null, null from artifacts where q.kind = 'artifact' and id = q.id
      union all
      select house_id, null, agent_id, null from api_keys where q.kind = 'API key' and id = q.id
    ) p
    join members m on m.house_id = p.house_id and m.agent_id = q.agent;
end $$;

create or replace function notice(p_house text, p_thread text, p_agents uuid[], p_kind text, p_seq bigint)
  returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  insert into public.notices as n (house_id, agent_id, thread_id, kind, first_seq, last_seq)
  select m.house_id, m.agent_id, t.id, p_kind, p_seq, p_seq
    from public.members m
      join public.agents a on a.id = m.agent_id and a.kind = 'human'
      join public.threads t on t.house_id = m.house_id and t.id = p_thread
      left join public.readings r on r.house_id = m.house_id and r.agent_id = m.agent_id and r.thread_id = t.id
    where m.house_id = p_house and m.agent_id = any (p_agents) and (t.people is null or m.agent_id = any (t.people)) and coalesce(r.seq, 0) < p_seq
    order by m.agent_id
  on conflict (house_id, agent_id, thread_id, kind) do update set
    first_seq = case when n.last_seq <= coalesce((select r.seq from public.readings r
      where r.house_id = n.house_id and r.agent_id = n.agent_id and r.thread_id = n.thread_id), 0) then excluded.first_seq else n.first_seq end,
    last_seq = excluded.last_seq, at = excluded.at
    where n.last_seq < excluded.last_seq;
end $$;

create or replace function persons_of(p_houses text[])
  returns table(house text, person text)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select h.id, coalesce(h.belongs_to::text, h.id) from public.houses h where h.id = any (p_houses);
end $$;

create or replace function said_last(p_stream bigint, p_upto bigint)
  returns table(author uuid, words text)
  language plpgsql stable set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  select e.author_agent_id, said_text(e.type, case when c.text is null then e.payload else chat_of(c.text) end)
    from (
      select * from entries where stream_id = p_stream and seq <= p_upto and type in ('chat', 'command') order by seq desc limit 200
    ) e left join chat_edits c on c.stream_id = e.stream_id and c.seq = e.seq
    where c.seq is null or c.text is not null
    order by e.seq desc limit 1;
end $$;

create or replace function stream_tails(p_ids bigint[])
  returns table(id bigint, tail bigint)
  language plpgsql stable security definer set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  select s.id, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0) from streams s
    where s.id = any (p_ids) and s.deleted_at is null;
end $$;

create or replace function tokens_of(p_keys text[], p_houses text[], p_threads text[], p_agents uuid[], p_epochs bigint[], p_joined timestamp with time zone[], p_makers text[])
  returns table(which bigint, agent_id uuid, role text, status text, maker_joined_at timestamp with time zone)
  language plpgsql stable security definer set search_path = public, pg_temp
  set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  select u.which, m.agent_id, m.role, case
      when not exists (select from signing_keys k where k.id = u.key) then 'unknown'
      when t.id is null then 'deleted'
      when m.joined_at is distinct from u.joined then 'left'
      when u.maker <> '' and o.agent_id is null then 'orphaned'
      when not thread_runs(t.status) then t.status
      when t.token_epoch <> u.epoch then 'revoked'
      else 'ok'
    end, o.joined_at
    from unnest(p_keys, p_houses, p_threads, p_agents, p_epochs, p_joined, p_makers) with ordinality u (key, house, thread, agent, epoch, joined, maker, which)
    left join threads t on t.id = u.thread and t.house_id = u.house
    left join members m on m.agent_id = u.agent and m.house_id = u.house
    left join members o on o.agent_id = nullif(u.maker, '')::uuid and o.house_id = u.house and o.role = 'owner';
end $$;

create or replace function undecided(p_streams bigint[])
  returns table(stream_id bigint, house_id text, thread_id text, decided bigint, tail bigint, direct text, driver text, answering text, settled boolean, people text[], roster bigint)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  select d.stream_id, d.house_id, d.thread_id, d.decided, t.tail, th.parent_agent_id::text, th.agent_id::text, th.answering_agent_id::text,
      th.answering_decided, coalesce(th.people::text[], '{}'), h.roster
    from public.decisions d
      join public.threads th on th.id = d.thread_id
      join public.houses h on h.id = d.house_id,
      lateral (select coalesce(max(e.seq), 0) as tail from public.entries e where e.stream_id = d.stream_id) t
    where d.stream_id = any (p_streams) and t.tail > d.decided;
end $$;

create or replace function waiting_turns(p_house text, p_thread text, p_most integer)
  returns table(of_thread integer, of_house integer, of_person integer)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
  return query
  select
    (select count(*)::int from (select from public.turns where house_id = p_house and thread_id = p_thread and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (select from public.turns where house_id = p_house and status in ('queued', 'delayed') limit p_most) t),
    (select count(*)::int from (
      select from public.houses h join public.turns t on t.house_id = h.id and t.status in ('queued', 'delayed')
      where h.id = p_house or h.belongs_to = (select own.belongs_to from public.houses own where own.id = p_house) limit p_most) t);
end $$;

-- These were in PL/pgSQL already, but Postgres planned their statements for the parameters of each call, because it expects less of an
-- array that it knows.
alter function decide_idle(bigint[], bigint[], bigint[]) set plan_cache_mode = force_generic_plan;
alter function index_next(bigint[], integer) set plan_cache_mode = force_generic_plan;
alter function index_next(bigint[], integer) set enable_seqscan = off;
alter function notice_turn() set plan_cache_mode = force_generic_plan;
alter function touch_threads(bigint[]) set plan_cache_mode = force_generic_plan;

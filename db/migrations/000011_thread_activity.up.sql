-- What a list shows of a thread besides its title: its last chat or command, and the running command. touch_threads
-- writes both together with active_at, so that a list reads one row per thread.

alter table threads
  add column last_said_by  uuid,
  add column last_said     text,
  add column running_id    text,
  add column running_since timestamptz;
comment on column threads.last_said is 'The beginning of the last chat or command, on one line; null if there is none. last_said_by is its author.';
comment on column threads.running_id is 'The entry of the oldest command that has not ended, running or waiting; null if there is none. running_since is when it was requested.';

-- said_text returns the beginning of an entry's text on one line. A text that Postgres cannot represent, such as one
-- with \u0000, is null, so that it does not keep other threads of the same statement from being touched.
create function said_text(p_type text, p_payload json) returns text language plpgsql immutable
  set search_path = pg_catalog, pg_temp as $$
begin
  return left(btrim(regexp_replace(left(case p_type
    when 'command' then '$ ' || coalesce(p_payload ->> 'command',
      (select string_agg(word, ' ' order by n) from json_array_elements_text(p_payload -> 'argv') with ordinality a (word, n)))
    else p_payload ->> 'text'
  end, 400), '\s+', ' ', 'g')), 160);
exception when others then
  return null;
end $$;

create or replace function touch_threads(p_streams bigint[]) returns setof bigint
  language plpgsql volatile security definer set search_path = public, pg_temp as $$
begin
  return query
  with stale as (
    select t.id, t.stream_id, s.id as stream, e.ts, e.seq from streams s
      join threads t on t.stream_id = s.name and t.house_id = s.house_id
      cross join lateral (select ts, seq from entries where stream_id = s.id order by seq desc limit 1) e
      where s.id = any (p_streams) and t.active_at < e.ts
  ), locked as (
    select id from threads where id in (select id from stale) for no key update skip locked
  ), running as (
    select distinct on (1) j.args ->> 'stream' as stream_id, j.args ->> 'command' as id, j.created_at as since from river.river_job j
      where j.queue = 'default' and j.kind = 'run_command' and j.state in ('available', 'running', 'scheduled', 'retryable')
        and j.args ->> 'stream' in (select stale.stream_id from stale)
      order by 1, j.id
  ), touched as (
    update threads t set active_at = stale.ts,
        last_said_by = case when said.seq is null then t.last_said_by else said.author_agent_id end,
        last_said = case when said.seq is null then t.last_said else said_text(said.type, said.payload) end,
        running_id = running.id, running_since = running.since
      from stale
        left join running on running.stream_id = stale.stream_id
        left join lateral (
          select seq, author_agent_id, type, payload from entries e
            where e.stream_id = stale.stream and e.seq > stale.seq - 200 and e.type in ('chat', 'command')
            order by seq desc limit 1
        ) said on true
      where t.id = stale.id and t.id in (select id from locked) and t.active_at < stale.ts
  )
  select stale.stream from stale where stale.id not in (select locked.id from locked);
end $$;

revoke execute on function said_text from public;

-- Fill the columns for existing threads. They keep their updated_at, because nobody changed them.
alter table threads disable trigger threads_set_updated_at;
update threads t set last_said_by = said.author_agent_id, last_said = said_text(said.type, said.payload)
  from streams s cross join lateral (
    select author_agent_id, type, payload from entries e where e.stream_id = s.id and e.type in ('chat', 'command') order by seq desc limit 1
  ) said
  where s.house_id = t.house_id and s.name = t.stream_id;
alter table threads enable trigger threads_set_updated_at;

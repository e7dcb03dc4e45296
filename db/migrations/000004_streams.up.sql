-- Streams that clients make and name themselves (the stream door): their lifetime, their writers, and forks.

alter table streams
  add column ttl_seconds     bigint check (ttl_seconds >= 0),
  add column expires_at      timestamptz,
  add column last_stream_seq text,
  add column deleted_at      timestamptz,
  add column source_id       bigint,
  add column fork_seq        bigint check (fork_seq >= 0),
  add column fork_sub        bigint check (fork_sub >= 0),
  add check (num_nulls(source_id, fork_seq, fork_sub) in (0, 3)),
  add check (ttl_seconds is null or expires_at is not null),
  add unique (house_id, id),
  add foreign key (house_id, source_id) references streams (house_id, id); -- a source stays as long as it has forks
comment on column streams.ttl_seconds is 'How long it outlives its last use; expires_at moves with every use. Null: expires_at stays.';
comment on column streams.last_stream_seq is 'The Stream-Seq of the last append that had one.';
comment on column streams.deleted_at is 'It was deleted, but forks read its entries: the last one takes it along.';
comment on column streams.source_id is 'The stream it is a fork of. Entries before fork_seq are the source''s; from there on they are its own.';
comment on column streams.fork_seq is 'The last entry it inherited. It has a copy of that one, so that it ends where its own entries end.';
comment on column streams.fork_sub is 'How far behind an offset of the source the fork was asked for: messages of JSON, else bytes.';
create index on streams (source_id) where source_id is not null;
create index on streams (expires_at) where expires_at is not null;

-- Producers number their appends, so that one that is sent twice is written once.
create table producers (
  stream_id bigint not null,
  house_id  text not null,
  name      text not null,
  epoch     bigint not null check (epoch >= 0),
  seq       bigint not null check (seq >= 0),
  closed    boolean not null default false,
  primary key (stream_id, name),
  foreign key (house_id, stream_id) references streams (house_id, id) on delete cascade
);
comment on table producers is 'The last append of each idempotent producer of a stream.';
comment on column producers.closed is 'That append closed the stream.';
create index on producers (house_id, stream_id);
alter table producers enable row level security;
create policy tenant on producers to arbe_app using (house_id = current_house());
grant select, insert, update on producers to arbe_app;

-- A fork begins with a copy of the last entry it inherits: whoever asks where it ends needs to know nothing
-- of forks.
create function begin_fork() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  if new.fork_seq > 0 then
    insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
    with recursive line (id, source_id, first, depth) as (
      select s.id, s.source_id, coalesce(s.fork_seq, 0), 0 from streams s where s.id = new.source_id
      union all
      select s.id, s.source_id, coalesce(s.fork_seq, 0), l.depth + 1 from line l join streams s on s.id = l.source_id
    )
    select new.id, e.seq, new.house_id, e.id, e.author_agent_id, e.type, e.payload, e.ts
      from line l join entries e on e.stream_id = l.id and e.seq = new.fork_seq
      where l.first <= new.fork_seq order by l.depth limit 1;
    if not found then
      raise exception 'a fork begins at an entry of its source' using errcode = 'check_violation', constraint = 'streams_fork_seq_there';
    end if;
  end if;
  return null;
end $$;
create trigger begin_fork after insert on streams
  for each row when (new.source_id is not null) execute function begin_fork();

-- The last fork of a deleted stream takes it along, and so on up the line.
create function collect_fork_source() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  -- The lock comes first: of two forks that go at the same time the second sees that the first is gone.
  perform from streams where id = old.source_id for update;
  delete from streams s where s.id = old.source_id and s.deleted_at is not null
    and not exists (select from streams f where f.source_id = s.id);
  return null;
end $$;
create trigger collect_source after delete on streams
  for each row when (old.source_id is not null) execute function collect_fork_source();

-- delete_stream deletes a stream for good or, when it has forks, for all but them.
create function delete_stream(p_id bigint) returns void language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform from streams where id = p_id for update; -- keeps new forks out
  if exists (select from streams where source_id = p_id) then
    update streams set deleted_at = now(), closed_at = coalesce(closed_at, now()) where id = p_id and deleted_at is null;
    perform pg_notify('arbe_stream', p_id || ':deleted');
  else
    delete from streams where id = p_id;
  end if;
end $$;

create or replace function delete_stream_of_thread() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform delete_stream(id) from streams where house_id = old.house_id and name = old.stream_id;
  return null;
end $$;

-- Tails of a closed stream are told, behind its last entry.
create function tell_stream_closed() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform pg_notify('arbe_stream', new.id || ':' || coalesce((select max(seq) from entries where stream_id = new.id), 0));
  perform pg_notify('arbe_stream', new.id || ':closed');
  return null;
end $$;
create trigger tell_closed after update of closed_at on streams
  for each row when (old.closed_at is null and new.closed_at is not null and new.deleted_at is null) execute function tell_stream_closed();

-- A server keeps streams that are used from expiring, and deletes those that did, whatever house they are
-- in. It learns nothing by it. Rows that are locked have their turn the next time.
create function touch_streams(p_ids bigint[], p_times timestamptz[]) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update streams s set expires_at = greatest(s.expires_at, t.time + make_interval(secs => s.ttl_seconds))
    from unnest(p_ids, p_times) t (id, time)
    where s.id = t.id and s.id in (select l.id from streams l where l.id = any (p_ids) and l.ttl_seconds is not null for no key update skip locked)
$$;
create function delete_expired_streams(p_before timestamptz) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  select delete_stream(id) from (
    select id from streams where expires_at < least(p_before, now()) and deleted_at is null limit 1000 for update skip locked) e
$$;

-- Which of these streams are closed; see stream_tails.
create function closed_streams(p_ids bigint[]) returns setof bigint
  language sql stable security definer set search_path = public, pg_temp as $$
  select id from streams where id = any (p_ids) and closed_at is not null
$$;

-- delete_own_stream is delete_stream for a transaction of the stream's house.
create function delete_own_stream(p_id bigint) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  select delete_stream(id) from streams where id = p_id and house_id = current_house()
$$;

-- close_own_stream closes a stream of the transaction's house. There is no way to open one again.
create function close_own_stream(p_id bigint) returns void
  language sql volatile security definer set search_path = public, pg_temp as $$
  update streams set closed_at = now() where id = p_id and house_id = current_house() and closed_at is null
$$;

revoke execute on function begin_fork, collect_fork_source, delete_stream, tell_stream_closed,
  touch_streams, delete_expired_streams, closed_streams, delete_own_stream, close_own_stream from public;
grant execute on function touch_streams, delete_expired_streams, closed_streams, delete_own_stream, close_own_stream to arbe_app;

grant insert (ttl_seconds, expires_at, source_id, fork_seq, fork_sub) on streams to arbe_app;
grant update (expires_at, last_stream_seq) on streams to arbe_app;

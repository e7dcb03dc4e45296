-- Subscriptions: durable cursors over streams of a house that wake workers when entries arrive.

create table subscriptions (
  id              bigint generated always as identity primary key,
  house_id        text not null references houses (id) on delete cascade,
  name            text not null,
  spec            jsonb not null,
  base_url        text not null,
  kind            text not null check (kind in ('webhook', 'pull-wake')),
  matching        text,
  lease           interval not null,
  created_at      timestamptz not null default now(),
  generation      bigint not null default 0,
  wake_id         text,
  token_hash      bytea,
  holder          text,
  lease_until     timestamptz,
  calling_until   timestamptz,
  attempts        int not null default 0,
  next_attempt_at timestamptz not null default now(),
  unique (house_id, name),
  unique (house_id, id)
);
comment on column subscriptions.spec is 'The requested specification. Creating it again with the same one changes nothing.';
comment on column subscriptions.base_url is 'The URL under which its creator reached the streams. Callback URLs begin with it.';
comment on column subscriptions.matching is 'The regular expression of its pattern.';
comment on column subscriptions.wake_id is 'The current wake, whose number is generation; null if there is none. No other wake begins before lease_until; if that is null, the wake waits to be claimed.';
comment on column subscriptions.token_hash is 'SHA-256 of the token with which the worker acknowledges.';
comment on column subscriptions.calling_until is 'Until when a server may take to deliver the wake; null if none delivers it.';
create index on subscriptions (token_hash);
create index on subscriptions (house_id) where calling_until is not null;

create table subscription_streams (
  subscription_id bigint not null,
  house_id        text not null,
  stream          text not null,
  explicit        boolean not null default false,
  matched         boolean not null default false,
  acked           bigint not null default 0,
  primary key (subscription_id, stream),
  foreign key (house_id, subscription_id) references subscriptions (house_id, id) on delete cascade
);
comment on table subscription_streams is 'The streams of each subscription, by name. A stream that is listed may be created later.';
comment on column subscription_streams.acked is 'The last position that was processed.';
create index on subscription_streams (house_id, stream);

alter table subscriptions enable row level security;
alter table subscription_streams enable row level security;
create policy tenant on subscriptions to arbe_app using (house_id = current_house());
create policy tenant on subscription_streams to arbe_app using (house_id = current_house());
grant select, insert, update, delete on subscriptions, subscription_streams to arbe_app;

-- Links a new stream before it can get entries. The lock waits for subscriptions that are being created, which look at
-- the existing streams.
create function link_new_stream() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('arbe.subscriptions'), hashtext(new.house_id));
  update subscription_streams set acked = coalesce(new.fork_seq, 0) where house_id = new.house_id and stream = new.name;
  insert into subscription_streams (subscription_id, house_id, stream, matched, acked)
  select id, house_id, new.name, true, coalesce(new.fork_seq, 0) from subscriptions
    where house_id = new.house_id and new.name ~ matching
  on conflict (subscription_id, stream) do update set matched = true;
  return null;
end $$;
create trigger link_new after insert on streams for each row execute function link_new_stream();

-- Returns the streams of a subscription and where they end; a stream that does not exist ends at 0. The end is looked
-- up in the index: with a join, Postgres would search all entries. Callers inline the function, which a search_path of
-- its own would prevent.
create function subscription_tails(p_id bigint) returns table (stream text, explicit boolean, acked bigint, tail bigint)
  language sql stable begin atomic
  select l.stream, l.explicit, l.acked, coalesce((
      select (select max(e.seq) from entries e where e.stream_id = s.id) from streams s
      where s.house_id = l.house_id and s.name = l.stream and s.deleted_at is null), 0)
    from subscription_streams l where l.subscription_id = p_id and (l.explicit or l.matched);
end;

-- One server calls the webhook of a wake within a time limit. Until then no server begins another wake, however short
-- the lease is. The number of concurrent calls per house is limited.
--
-- begin_wakes begins wakes for subscriptions that have unprocessed entries and no current holder: at most p_most, of
-- which at most p_failing failed before, and so that no house has more than p_house in delivery. Houses take turns. A
-- wake that is not acknowledged within its lease has failed, and begins again after a pause that doubles with every
-- failure up to a quarter of an hour; so does a wake that its server does not deliver within p_within.
create function begin_wakes(p_most int, p_failing int, p_house int, p_within interval)
  returns table (house_id text, id bigint, generation bigint, failing boolean)
  language plpgsql volatile security definer
  set search_path = public, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  -- Servers run it one at a time, so that each counts the wakes of the others.
  perform pg_advisory_xact_lock(hashtext('arbe.wakes'));
  return query
    with told as (
      select s.house_id, count(*) as n from subscriptions s where s.calling_until > now() group by s.house_id
    ), placed as (
      select d.id, d.wake_id, d.attempts > 0 as failing, d.next_attempt_at,
        coalesce(t.n, 0) + row_number() over (partition by d.house_id order by d.attempts > 0, d.next_attempt_at, d.id) as place
      from subscriptions d left join told t on t.house_id = d.house_id
      where d.next_attempt_at <= now() and (d.calling_until is null or d.calling_until <= now())
        and (d.wake_id is null or d.lease_until < now() - make_interval(secs => least(2 ^ least(d.attempts, 20) - 1, 900)))
        and exists (select from subscription_tails(d.id) l where l.tail > l.acked)
    ), ranked as (
      select p.id, p.wake_id, p.place, p.failing, row_number() over (partition by p.failing order by p.place, p.next_attempt_at, p.id) as nth
      from placed p where p.place <= p_house
    ), chosen as (
      select r.id, r.wake_id, r.failing from ranked r where not r.failing or r.nth <= p_failing order by r.place, r.id limit p_most
    ), locked as (
      -- Unless a worker claimed or acknowledged it meanwhile.
      select d.id, c.failing from subscriptions d join chosen c on c.id = d.id
      where d.wake_id is not distinct from c.wake_id and (d.wake_id is null or d.lease_until < now())
      for update of d skip locked
    )
    update subscriptions s set generation = s.generation + 1, wake_id = 'w_' || replace(gen_random_uuid()::text, '-', ''),
        holder = null, token_hash = null, lease_until = now() + p_within, calling_until = now() + p_within,
        attempts = s.attempts + case when s.wake_id is not null and s.kind = 'webhook' then 1 else 0 end
      from locked l where s.id = l.id
      returning s.house_id, s.id, s.generation, l.failing;
end $$;

-- Returns the house of a wake token, because a worker shows it without a credential of the house.
create function house_of_wake(p_token bytea) returns text
  language sql stable security definer set search_path = public, pg_temp as $$
  select house_id from subscriptions where token_hash = p_token
$$;
revoke execute on function link_new_stream, subscription_tails, begin_wakes, house_of_wake from public;
grant execute on function subscription_tails, begin_wakes, house_of_wake to arbe_app;

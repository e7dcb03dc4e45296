-- Subscriptions: durable cursors over streams of a house, which wake whoever works on what comes.

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
  attempts        int not null default 0,
  next_attempt_at timestamptz not null default now(),
  unique (house_id, name),
  unique (house_id, id)
);
comment on column subscriptions.spec is 'What its maker asked for. The same again is no other subscription.';
comment on column subscriptions.base_url is 'What its maker reached the streams under: callbacks begin with it.';
comment on column subscriptions.matching is 'The regular expression of its pattern.';
comment on column subscriptions.wake_id is 'The wake under way, the generation-th one; null: none is. Until lease_until nobody else is woken; null: until somebody claims it.';
comment on column subscriptions.token_hash is 'SHA-256 of the token that who was woken acknowledges with.';
create index on subscriptions (token_hash);

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
comment on table subscription_streams is 'The streams of each subscription, by name: one that is named may be made later.';
comment on column subscription_streams.acked is 'The last position that was worked on.';
create index on subscription_streams (house_id, stream);

alter table subscriptions enable row level security;
alter table subscription_streams enable row level security;
create policy tenant on subscriptions to arbe_app using (house_id = current_house());
create policy tenant on subscription_streams to arbe_app using (house_id = current_house());
grant select, insert, update, delete on subscriptions, subscription_streams to arbe_app;

-- A new stream is linked before anything can be missed in it. The lock keeps out subscriptions that are being
-- made, which look at the streams that are there.
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

-- The streams of a subscription, and where they end; one that is not there ends at 0.
create function subscription_tails(p_id bigint) returns table (stream text, explicit boolean, acked bigint, tail bigint)
  language sql stable as $$
  select l.stream, l.explicit, l.acked, coalesce((
      select max(e.seq) from streams s join entries e on e.stream_id = s.id
      where s.house_id = l.house_id and s.name = l.stream and s.deleted_at is null), 0)
    from subscription_streams l where l.subscription_id = p_id and (l.explicit or l.matched)
$$;

-- begin_wakes begins a wake of subscriptions, of whatever house, that have something to work on and nobody
-- at it. A wake that its server does not get told before the lease ends is begun again.
create function begin_wakes(p_limit int) returns table (house_id text, id bigint, generation bigint)
  language sql volatile security definer set search_path = public, pg_temp as $$
  update subscriptions s set generation = s.generation + 1, wake_id = 'w_' || replace(gen_random_uuid()::text, '-', ''),
      holder = null, token_hash = null, lease_until = now() + s.lease
    where s.id in (
      select d.id from subscriptions d
      where d.next_attempt_at <= now() and (d.wake_id is null or d.lease_until < now())
        and exists (select from subscription_tails(d.id) t where t.tail > t.acked)
      limit p_limit for update skip locked)
    returning s.house_id, s.id, s.generation
$$;

-- Whose subscription a token is of, which is shown without a house's credential.
create function house_of_wake(p_token bytea) returns text
  language sql stable security definer set search_path = public, pg_temp as $$
  select house_id from subscriptions where token_hash = p_token
$$;
revoke execute on function link_new_stream, begin_wakes, house_of_wake from public;
grant execute on function begin_wakes, house_of_wake to arbe_app;

-- Owner: internal/inbox.

-- name: Needs :many
-- The threads that need a member, latest first, and their total number. This is the only query that counts them.
with mine as (
  select n.thread_id, n.kind, n.first_seq, n.last_seq, n.at from notices n where n.house_id = @house_id and n.agent_id = @agent_id
  union all
  select a.thread_id, 'approval', 0, 9223372036854775807, max(a.asked_at) from approvals a where a.house_id = @house_id and a.state = 'open'
    and not exists (select from threads d where d.house_id = a.house_id and d.id = a.thread_id and d.people is not null and @agent_id <> all (d.people)) group by a.thread_id
), needs as (
  select m.thread_id, bool_or(m.kind = 'mention') as mention, bool_or(m.kind = 'approval') as approval, bool_or(m.kind = 'failed') as failed,
    bool_or(m.kind = 'finished') as finished, coalesce(min(greatest(m.first_seq, coalesce(r.seq, 0) + 1)) filter (where m.first_seq > 0), 0) as seq, max(m.at) as at
  from mine m left join readings r on r.house_id = @house_id and r.agent_id = @agent_id and r.thread_id = m.thread_id
  where m.last_seq > coalesce(r.seq, 0) and (m.kind = 'mention' or not coalesce(r.muted, false))
  group by m.thread_id
), page as (
  select *, count(*) over () as total from needs order by needs.at desc, needs.thread_id limit @most
)
select p.thread_id, coalesce(t.name, '')::text as name, p.mention::bool as mention, p.approval::bool as approval, p.failed::bool as failed,
  p.finished::bool as finished, p.seq::bigint as seq, p.at::timestamptz as at, p.total::bigint as total,
  coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0)::bigint as tail
from page p join threads t on t.house_id = @house_id and t.id = p.thread_id
join streams s on s.house_id = t.house_id and s.name = t.stream_id
order by p.at desc, p.thread_id;

-- name: Readings :many
-- How far a member has read the given threads, and how many messages of others are unread there: at most @most, among the
-- last @span messages and commands.
select t.id, coalesce(r.seq, 0)::bigint as seq, coalesce(r.muted, false)::bool as muted,
  u.n::int as unread
from threads t
join members m on m.house_id = t.house_id and m.agent_id = @agent_id
join streams s on s.house_id = t.house_id and s.name = t.stream_id
left join readings r on r.house_id = t.house_id and r.agent_id = @agent_id and r.thread_id = t.id
cross join lateral (
  select count(*) as n from (
    select from (
      select e.stream_id, e.seq, e.type, e.author_agent_id, e.ts from entries e
      where (r.seq is not null or t.active_at > m.read_from) -- most threads have not changed since
        and e.stream_id = s.id and e.type in ('chat', 'command') and e.seq > coalesce(r.seq, 0)
      order by e.seq desc limit @span
    ) e
    where e.type = 'chat' and e.author_agent_id <> @agent_id and (r.seq is not null or e.ts > m.read_from)
      and not exists (select from chat_edits c where c.stream_id = e.stream_id and c.seq = e.seq and c.text is null)
    limit @most
  ) fresh
) u
where t.house_id = @house_id and t.id = any (@ids::text[])
order by t.id;

-- name: MarkRead :execrows
-- Affects no row if the member had already read that far, or to the end of the thread.
insert into readings as r (house_id, agent_id, thread_id, seq)
select t.house_id, @agent_id, t.id, least(@seq::bigint, (select max(e.seq) from entries e where e.stream_id = s.id))
from threads t join streams s on s.house_id = t.house_id and s.name = t.stream_id
where t.house_id = @house_id and t.id = @thread_id and exists (select from entries e where e.stream_id = s.id)
on conflict (house_id, agent_id, thread_id) do update set seq = excluded.seq where r.seq < excluded.seq;

-- name: MarkUnread :exec
-- Affects no row if the member has not read that far.
update readings set seq = @seq
where house_id = @house_id and agent_id = @agent_id and thread_id = @thread_id and seq > @seq;

-- name: DropRead :exec
delete from notices where house_id = @house_id and agent_id = @agent_id and thread_id = @thread_id and last_seq <= @seq;

-- name: Mute :exec
-- A thread that the member has not opened then counts as read, because nobody mutes what they still want to read.
insert into readings as r (house_id, agent_id, thread_id, seq, muted)
select t.house_id, @agent_id, t.id, coalesce((select max(e.seq) from entries e where e.stream_id = s.id), 0), @muted
from threads t join streams s on s.house_id = t.house_id and s.name = t.stream_id
where t.house_id = @house_id and t.id = @thread_id
on conflict (house_id, agent_id, thread_id) do update set muted = excluded.muted where r.muted <> excluded.muted;

-- name: AddNotices :exec
select add_notices(@thread_id::text, @agents::uuid[], @kind::text, @seq::bigint);

-- name: MentionNotice :one
-- The first and the last entry of a thread that mention a member, and how far the member has read it. Returns no row if no
-- entry mentions them.
select n.first_seq, n.last_seq, coalesce((select r.seq from readings r where r.house_id = n.house_id and r.agent_id = n.agent_id and r.thread_id = n.thread_id), 0)::bigint as read
from notices n where n.house_id = @house_id and n.agent_id = @agent_id and n.thread_id = @thread_id and n.kind = 'mention';

-- name: DropMention :execrows
-- Affects no row if somebody has mentioned the member again meanwhile.
delete from notices where house_id = @house_id and agent_id = @agent_id and thread_id = @thread_id and kind = 'mention' and last_seq = @last_seq;

-- name: PeopleOfHouse :many
select a.id, coalesce(a.name, '')::text as name from members m join agents a on a.id = m.agent_id
where m.house_id = @house_id and a.kind = 'human' order by m.joined_at, a.id limit @most;

-- name: DirectThreads :many
-- The open direct messages of a person, latest first, each with the agent on the other side.
select t.id, coalesce(t.name, '')::text as name, coalesce(a.id::text, '')::text as agent_id, coalesce(a.name, '')::text as agent_name, coalesce(a.kind, '')::text as agent_kind, t.active_at
from threads t left join agents a on a.id = case when t.parent_agent_id = @agent_id::uuid and cardinality(t.people) = 2
  then (select p from unnest(t.people) p where p <> @agent_id::uuid limit 1) else t.parent_agent_id end
where t.house_id = @house_id and t.people is not null and @agent_id::uuid = any (t.people) and t.status = 'open'
order by t.active_at desc, t.id desc limit @most;

-- name: Causes :many
-- The entries with which threads came to need a member: the last mention of them in @mentions, and what the work in @failures
-- and @answers ended with, if that is among the last @back entries of it. A large payload is left out. Text is what an edited
-- message says now; null if it was deleted.
select n.thread_id, n.kind, coalesce(e.author_agent_id::text, t.agent_id::text, '')::text as agent_id, e.type,
  case when pg_column_size(e.payload) <= 65536 then e.payload::text else '' end::text as payload, c.text as text, (c.seq is not null)::bool as edited
from notices n
join threads t on t.house_id = n.house_id and t.id = n.thread_id
join streams s on s.house_id = t.house_id and s.name = t.stream_id
cross join lateral (
  select e.seq, e.author_agent_id, e.type, e.payload from entries e
  where e.stream_id = s.id and e.seq > n.last_seq - @back::bigint and e.seq <= n.last_seq
    and (n.kind = 'mention' and e.seq = n.last_seq or n.kind = 'failed' and e.type = any (@failed::text[]) or n.kind = 'finished' and e.type = any (@finished::text[]))
  order by e.seq desc limit 1
) e
left join chat_edits c on c.stream_id = s.id and c.seq = e.seq
where n.house_id = @house_id and n.agent_id = @agent_id and n.thread_id = any (@mentions::text[] || @failures::text[] || @answers::text[])
  and (n.kind = 'mention' and n.thread_id = any (@mentions::text[]) or n.kind = 'failed' and n.thread_id = any (@failures::text[])
    or n.kind = 'finished' and n.thread_id = any (@answers::text[]))
order by n.thread_id;

-- name: OpenRequests :many
-- The last open request to people in each of these threads. Arguments that are large are left out.
select distinct on (a.thread_id) a.thread_id, a.agent_id, a.tool, a.question,
  case when octet_length(a.arguments) <= 16384 then a.arguments else '' end::text as arguments
from approvals a where a.house_id = @house_id and a.state = 'open' and a.thread_id = any (@threads::text[])
order by a.thread_id, a.asked_at desc, a.id;

-- name: NamesOf :many
select a.id, a.kind, coalesce(a.name, '')::text as name from agents a where a.id = any (@ids::uuid[]) order by a.id;

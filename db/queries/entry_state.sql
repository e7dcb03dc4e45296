-- Owner: internal/entrystate.

-- name: LastChat :one
-- The last message that an agent wrote in a thread after a position.
select e.seq, e.id, e.payload::text as payload from entries e join streams s on s.id = e.stream_id
where s.house_id = @house_id and s.name = @stream and e.seq > @behind and e.type = 'chat' and e.author_agent_id = @author::uuid
order by e.seq desc limit 1;

-- name: ChatEdit :one
-- The edit or deletion of a message. Returns no row if it was neither edited nor deleted.
select c.seq, c.entry_id, coalesce(c.text, '')::text as text, (c.text is null)::bool as deleted, c.edits, c.changed_at from chat_edits c
where c.house_id = @house_id and c.thread_id = @thread_id and c.entry_id = @entry_id;

-- name: DeletedMessages :one
select count(*) from chat_edits where house_id = @house_id and thread_id = @thread_id and text is null;

-- name: DeletedAmong :many
-- Which entries at some positions are deleted messages, or edits of deleted messages.
select p.seq::bigint as seq from unnest(@seqs::bigint[]) as p (seq) where exists (
  select from chat_edits c join streams s on s.id = c.stream_id
  where s.house_id = @house_id and s.name = @stream and c.text is null and (c.seq = p.seq or p.seq = any (c.edits)));

-- name: ChatEdits :many
-- The edits and deletions of the messages at the given positions.
select c.seq, c.entry_id, coalesce(c.text, '')::text as text, (c.text is null)::bool as deleted, c.edits, c.changed_at
from chat_edits c join streams s on s.id = c.stream_id
where s.house_id = @house_id and s.name = @stream and c.seq = any(@seqs::bigint[]) order by c.seq;

-- name: PutChatEdit :exec
-- A null text deletes the message. edit is the position of the entry that records the change.
insert into chat_edits as c (house_id, thread_id, stream_id, seq, entry_id, text, edits)
select s.house_id, @thread_id, s.id, @seq, @entry_id, sqlc.narg(text), case when sqlc.narg(text)::text is null then '{}' else array[@edit::bigint] end
from streams s where s.house_id = @house_id and s.name = @stream
on conflict (stream_id, seq) do update set text = excluded.text, edits = c.edits || excluded.edits, changed_at = now();

-- name: ReviseThread :exec
select revise_thread(@thread_id::text, @seq::bigint);

-- name: CopyChatEdits :exec
-- Copies the edits and deletions of the messages that a fork shares with its source.
insert into chat_edits (house_id, thread_id, stream_id, seq, entry_id, text, changed_at)
select c.house_id, @fork_id, f.id, c.seq, c.entry_id, c.text, c.changed_at
from chat_edits c join streams s on s.id = c.stream_id join streams f on f.house_id = s.house_id and f.name = @fork
where s.house_id = @house_id and s.name = @source and c.seq <= @upto;

-- name: Reactions :many
-- The reactions to the entries at the given positions, by entry and then by who reacted first. The limit cuts the result if
-- many entries have very many reactions.
select r.seq, r.agent_id, r.emoji from reactions r join streams s on s.id = r.stream_id
where s.house_id = @house_id and s.name = @stream and r.seq = any(@seqs::bigint[]) and r.emoji <> '{}'
order by r.seq, r.began_at, r.agent_id limit 20000;

-- name: ReactionsTo :many
-- The rows of all members who have ever reacted to an entry, including those who have removed all their reactions.
select r.agent_id, r.emoji, r.changes from reactions r join streams s on s.id = r.stream_id
where s.house_id = @house_id and s.name = @stream and r.seq = @seq;

-- name: PutReaction :exec
insert into reactions as r (house_id, thread_id, stream_id, seq, agent_id, emoji)
select s.house_id, @thread_id, s.id, @seq, @agent_id, @emoji::text[] from streams s where s.house_id = @house_id and s.name = @stream
on conflict (stream_id, seq, agent_id) do update set emoji = excluded.emoji, changes = r.changes + 1,
  began_at = case when r.emoji = '{}' then now() else r.began_at end;

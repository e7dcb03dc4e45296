package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/trace"
)

// Message is a chat or command to write.
type Message struct {
	// ID makes a retry harmless: the same message with the same ID returns the first entry. If it is empty, an id is
	// generated.
	ID string
	// Text is Markdown, or a shell command that [entry.ParseCommand] recognises. If the speaker may run commands, another
	// word after a slash ([entry.UnknownCommand]) is refused, and "//word" says "/word".
	Text string
	// ReplyTo is the id of the entry that a chat answers, if any.
	ReplyTo string
	// Think is how hard the answering bots think. If the speaker may run commands, it defaults to what [entry.ThinkDirective]
	// finds in Text, and otherwise to the bots' own setting.
	Think entry.Effort
	// Literal makes the message a chat even if it looks like a command, and treats a /think in it as text.
	Literal bool
	// Queue lets a chat wait until the thread's coding agent has done its current work; see [entry.Chat.Queue]. A command
	// cannot wait, and neither can a chat in a thread that no coding agent drives.
	Queue bool
	// Attachments are the ids of a chat's artifacts, at most [entry.MaxAttachments]; see [artifact.Artifacts.Attach]. A
	// command cannot have any.
	Attachments []string
}

// Chat returns the draft of the message as a chat.
func (w Message) Chat(author string) entry.Draft {
	chat := entry.Chat{Text: w.Text, ReplyTo: w.ReplyTo, Think: w.Think, Queue: w.Queue}
	for _, id := range w.Attachments {
		chat.Attachments = append(chat.Attachments, entry.Attachment{ArtifactID: id})
	}
	// Keep < and & unescaped: the text is not HTML.
	return entry.Draft{ID: w.ID, Author: author, Type: chat.Type(), Payload: unescapedJSON(chat)}
}

// Say writes a message to a thread and returns its entry: an [entry.Command], which is also queued, if the message is a
// command and the speaker may run commands; an [entry.AgentSpawn] if they delegate a task; otherwise an [entry.Chat].
// Repeating a message with the same ID only returns the first entry. The entry whose id is the command's [entry.ResultID] is
// its result.
//
// Errors: those of [entry.Check], [entry.Repeated], [artifact.Artifacts.Attach] and [stream.Log.Append]; for an unknown
// command a [fault.Invalid] that names the known ones; for a command those of [command.Commands.Run].
func (d *Dispatcher) Say(ctx context.Context, by Speaker, threadID string, w Message) (entry.Entry, error) {
	if w.Queue {
		if _, command := entry.ParseCommand(w.Text); command && !w.Literal {
			return entry.Entry{}, fault.New(fault.Invalid, "queue: a command does not wait for the agent", "send it without queue, or literally as a chat")
		}
		if err := d.Runs.MayQueue(ctx, by.Scope, threadID); err != nil {
			return entry.Entry{}, err
		}
	}
	return d.Append(ctx, by, threadID, w.Chat(by.Agent), w.Literal)
}

// Append is Say for a draft. With literal, the draft is written unchanged, whatever its text begins with.
func (d *Dispatcher) Append(ctx context.Context, by Speaker, threadID string, draft entry.Draft, literal bool) (_ entry.Entry, err error) {
	d.output.Ask(by.House)
	ctx, span := trace.Start(ctx, trace.Internal, "say")
	defer func() { span.End(err) }()
	if err := entry.Check(draft, entry.Anyone); err != nil {
		return entry.Entry{}, err
	}
	if err := d.MayGrow(ctx, by.Scope); err != nil {
		return entry.Entry{}, err
	}
	if agent, task, is, err := by.delegation(ctx, draft, literal); is || err != nil {
		if err != nil {
			return entry.Entry{}, err
		}
		return d.delegate(ctx, by, threadID, draft.ID, agent, task)
	}
	said, err := d.interpret(ctx, by, threadID, []entry.Draft{draft}, []bool{literal})
	if err != nil {
		return entry.Entry{}, err
	}
	d.saidIn.note(ctx, said.to, said.drafts)
	return d.write(ctx, said)
}

// write writes the only draft of what a speaker says.
func (d *Dispatcher) write(ctx context.Context, said saying) (_ entry.Entry, err error) {
	var entries []entry.Entry
	if said.plain() {
		if entries, err = d.log.Append(ctx, said.to, said.drafts...); err == nil {
			err = entry.Repeated(said.drafts[0], entries[0])
		}
	} else {
		err = d.sayTx(ctx, said, func(tx pgx.Tx, drafts []entry.Draft) (_ []entry.Entry, err error) {
			if entries, err = d.log.AppendTx(ctx, tx, said.to, drafts...); err != nil {
				return nil, err
			}
			return entries, entry.Repeated(drafts[0], entries[0])
		})
	}
	if err != nil {
		return entry.Entry{}, err
	}
	return entries[0], nil
}

// SayAll is Say for all messages in a write's content, together with the write's other effects: all or nothing, in one
// transaction. The caller has validated the content. literal reports which messages are literal. Errors: also those of
// [stream.Log.Write].
func (d *Dispatcher) SayAll(ctx context.Context, by Speaker, threadID string, w stream.Write, literal []bool) (done stream.Written, err error) {
	ctx, span := trace.Start(ctx, trace.Internal, "say")
	defer func() { span.End(err) }()
	if err := d.MayGrow(ctx, by.Scope); err != nil {
		return done, err
	}
	said, err := d.interpret(ctx, by, threadID, w.Content, literal)
	if err != nil {
		return done, err
	}
	d.saidIn.note(ctx, said.to, said.drafts)
	if w.Content = said.drafts; said.plain() {
		return d.log.Write(ctx, said.to, w)
	}
	err = d.sayTx(ctx, said, func(tx pgx.Tx, drafts []entry.Draft) (entries []entry.Entry, err error) {
		w.Content = drafts
		done, entries, err = d.log.WriteTx(ctx, tx, said.to, w)
		return entries, err
	})
	return done, err
}

// saying is the interpretation of a speaker's messages.
type saying struct {
	by     Speaker
	thread string
	to     stream.Ref
	drafts []entry.Draft
	// runs reports whether there are commands. files holds the artifacts that the chats name.
	runs  bool
	files []string
}

// plain reports whether it can be written without reading other rows.
func (s saying) plain() bool { return !s.runs && len(s.files) == 0 }

// interpret returns the speaker's intention with some valid chats: chats that are commands become commands, and attachments
// are checked.
func (d *Dispatcher) interpret(ctx context.Context, by Speaker, threadID string, chats []entry.Draft, literal []bool) (s saying, err error) {
	s = saying{by: by, thread: threadID, to: stream.Ref{House: by.House, Name: thread.StreamName(threadID)}}
	if s.drafts, s.runs, err = by.drafts(ctx, chats, literal); err != nil {
		return s, err
	}
	for i := range s.drafts {
		ids, err := d.attach(ctx, s, i, chats[i])
		if err != nil {
			return s, err
		}
		s.files = append(s.files, ids...)
	}
	return s, nil
}

// attach attaches the files that a chat names to its draft, and returns their ids. It leaves a draft that is already in
// the log as it is.
func (d *Dispatcher) attach(ctx context.Context, s saying, i int, chat entry.Draft) (ids []string, err error) {
	draft := s.drafts[i]
	if ids, err = attached(draft, chat); err != nil || len(ids) == 0 {
		return nil, err
	}
	if draft.ID != "" { // a retry is harmless, also after a file was deleted
		switch there, err := d.log.Get(ctx, s.to, draft.ID); {
		case err == nil && entry.Repeated(draft, there) == nil:
			return nil, nil
		case err != nil && fault.CodeOf(err) != fault.NotFound:
			return nil, err
		}
	}
	if d.config.Artifacts == nil {
		return nil, fault.New(fault.Precondition, "this server stores no files", "send the text alone")
	}
	files, err := d.config.Artifacts.Attach(ctx, s.by.Scope, s.thread, ids, s.by.Confined)
	if err != nil {
		return nil, err
	}
	s.drafts[i] = entry.Attach(draft, files)
	return ids, entry.Check(s.drafts[i], entry.Server)
}

// attached returns the ids of the artifacts that a chat names. became is the draft that the chat turned into: a command
// cannot have any.
func attached(became, chat entry.Draft) (ids []string, err error) {
	// Most chats have none, so avoid decoding them. A name may be written with an escape.
	if chat.Type != (entry.Chat{}).Type() || !bytes.Contains(chat.Payload, []byte("attachments")) && !bytes.Contains(chat.Payload, []byte(`\u`)) {
		return nil, nil
	}
	var c entry.Chat
	if json.Unmarshal(chat.Payload, &c) != nil {
		return nil, nil // cannot happen: the chat was checked
	}
	for _, a := range c.Attachments {
		ids = append(ids, a.ArtifactID)
	}
	if len(ids) > 0 && became.Type != chat.Type {
		return nil, fault.New(fault.Invalid, "a command cannot have files", "send them with a message, and name them in the command")
	}
	return ids, nil
}

// sayTx writes the entries in one transaction, which also checks files and queues commands.
func (d *Dispatcher) sayTx(ctx context.Context, s saying, write func(pgx.Tx, []entry.Draft) ([]entry.Entry, error)) error {
	checked := func(tx pgx.Tx, drafts []entry.Draft) ([]entry.Entry, error) {
		if len(s.files) > 0 {
			if err := d.config.Artifacts.AttachTx(ctx, tx, s.by.House, s.thread, s.files, s.by.Confined); err != nil {
				return nil, err
			}
		}
		return write(tx, drafts)
	}
	if !s.runs {
		return d.db.In(ctx, s.by.Scope, func(tx pgx.Tx) error {
			_, err := checked(tx, s.drafts)
			return err
		})
	}
	return d.Commands.WriteTx(ctx, s.by.Scope, s.thread, s.drafts, func(tx pgx.Tx, _ stream.Ref, drafts []entry.Draft) ([]entry.Entry, error) {
		return checked(tx, drafts)
	})
}

// drafts turns each chat that is a command into one, if the speaker may run commands. runs reports whether there are any
// commands.
func (s Speaker) drafts(ctx context.Context, chats []entry.Draft, literal []bool) (drafts []entry.Draft, runs bool, err error) {
	may := sync.OnceValues(func() (bool, error) { return s.runs(ctx) })
	for i, draft := range chats {
		text, composed := composedIn(draft)
		if composed && !literal[i] {
			ok, err := may()
			if err == nil && ok {
				draft, err = compose(draft, text)
			}
			if err != nil {
				return nil, false, err
			}
			runs = runs || draft.Type == (entry.Command{}).Type()
		}
		if s.Confined {
			draft = entry.Confine(draft)
		}
		draft = entry.Through(draft, s.Via)
		drafts = append(drafts, draft)
	}
	return drafts, runs, nil
}

// compose returns the draft that a speaker means by a chat with this text: a command, the chat without its escape, or the
// chat with its directive applied. An unknown command is a [fault.Invalid] that lists the known ones.
func compose(draft entry.Draft, text string) (entry.Draft, error) {
	if plain := entry.Unescaped(text); plain != text {
		return with(draft, "text", plain)
	}
	if err := entry.CheckComposed(text); err != nil {
		return draft, err
	}
	if effort, _, directive, _ := entry.ThinkDirective(text); directive {
		return with(draft, "think", effort)
	}
	line, command := entry.ParseCommand(text)
	if !command {
		return draft, fault.New(fault.Invalid, "a task cannot be delegated together with other entries", "send it by itself, or delegate it with RunService or arbe run")
	}
	draft = entry.NewDraft(draft.ID, draft.Author, entry.Command{Command: line})
	return draft, entry.Check(draft, entry.Server)
}

// with returns the draft of a chat with one field changed.
func with(draft entry.Draft, field string, value any) (entry.Draft, error) {
	var payload map[string]json.RawMessage
	if err := json.Unmarshal(draft.Payload, &payload); err != nil {
		return draft, err // cannot fail: composedIn decoded it
	}
	payload[field] = unescapedJSON(value)
	draft.Payload = unescapedJSON(payload)
	return draft, nil
}

// unescapedJSON returns v as JSON with < and & unescaped.
func unescapedJSON(v any) json.RawMessage {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	_ = to.Encode(v) // cannot fail for plain values
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	add := func(id, kind, payload string) (*arbev1.Entry, error) {
		res, err := ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: id, Type: kind, Payload: payload})
		return res.GetEntry(), err
	}
	tail := func(t *testing.T) int64 {
		t.Helper()
		res, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id})
		must(t, err)
		return res.Thread.Tail
	}

	t.Run("keeps author, time, position and the exact payload", func(t *testing.T) {
		const payload = `{ "text":"caf\u00e9 <b> 🦊",  "reply_to":"x", "extra":[1.50] }`
		e, err := add("first", "chat", payload)
		must(t, err)
		if e.Seq != 1 || e.Id != "first" || e.StreamId != th.StreamId || e.AuthorAgentId != ada.id || e.Type != "chat" || time.Since(e.Ts.AsTime()) > time.Minute {
			t.Errorf("it is %v", e)
		}
		if log := ada.log(t, th.Id); len(log) != 1 || log[0].Payload != payload || e.Payload != payload {
			t.Errorf("the log is %v", log)
		}
	})
	t.Run("repeated with the same id returns the first entry", func(t *testing.T) {
		before := tail(t)
		again, err := add("first", "chat", `{"text":"café <b> 🦊","reply_to":"x","extra":[1.5]}`)
		must(t, err)
		if again.Seq != 1 || again.AuthorAgentId != ada.id || tail(t) != before {
			t.Errorf("it is %v, and the log ends at %d", again, tail(t))
		}
	})
	t.Run("with the id of an entry that says something else is refused", func(t *testing.T) {
		before := tail(t)
		_, err := add("first", "chat", chat("other"))
		refused(t, err, connect.CodeAlreadyExists, "first")
		_, err = b.cyd.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: "first", Type: "chat", Payload: `{"text":"café <b> 🦊","reply_to":"x","extra":[1.5]}`})
		refused(t, err, connect.CodeAlreadyExists, "first")
		if tail(t) != before {
			t.Errorf("the log ends at %d", tail(t))
		}
	})
	t.Run("chooses an id when there is none", func(t *testing.T) {
		one, two := ada.say(t, th.Id, "same"), ada.say(t, th.Id, "same")
		if one.Id == "" || one.Id == two.Id || two.Seq != one.Seq+1 {
			t.Errorf("they are %v and %v", one, two)
		}
	})
	t.Run("takes a text of just under 1 MiB", func(t *testing.T) {
		text := strings.Repeat("x", entry.MaxText)
		if e, err := add("", "chat", chat(text)); err != nil || e.Payload != chat(text) {
			t.Errorf("it is refused, or not kept: %v", err)
		}
	})

	before := tail(t)
	for what, c := range map[string]struct {
		id, kind, payload string
		code              connect.Code
		says              string
	}{
		"an empty text":                {"", "chat", chat(""), connect.CodeInvalidArgument, "text"},
		"a blank text":                 {"", "chat", chat(" \n\t\u00a0\u2003"), connect.CodeInvalidArgument, "text"},
		"no text":                      {"", "chat", `{}`, connect.CodeInvalidArgument, "text"},
		"a text of 1 MiB":              {"", "chat", chat(strings.Repeat("x", 1<<20)), connect.CodeResourceExhausted, "text"},
		"a payload above the limit":    {"", "chat", chat(strings.Repeat("x", entry.MaxPayload)), connect.CodeResourceExhausted, "payload"},
		"a message above the limit":    {"", "chat", chat(strings.Repeat("x", 6<<20)), connect.CodeResourceExhausted, "larger than"},
		"a text that is a number":      {"", "chat", `{"text":1}`, connect.CodeInvalidArgument, "text: it is a JSON number"},
		"a payload that is a list":     {"", "chat", `["text"]`, connect.CodeInvalidArgument, "payload: it is a JSON array"},
		"a payload that is null":       {"", "chat", `null`, connect.CodeInvalidArgument, "text"},
		"a payload that is not JSON":   {"", "chat", `{"text":"a"`, connect.CodeInvalidArgument, "payload"},
		"two payloads":                 {"", "chat", `{"text":"a"} {}`, connect.CodeInvalidArgument, "payload"},
		"a payload with a NUL byte":    {"", "chat", "{\"text\":\"a\x00\"}", connect.CodeInvalidArgument, "payload"},
		"a payload nested without end": {"", "chat", `{"text":"a","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}", connect.CodeInvalidArgument, "payload"},
		"no payload":                   {"", "chat", "", connect.CodeInvalidArgument, "payload"},
		"a type nobody knows":          {"", "shout", chat("a"), connect.CodeInvalidArgument, `type: "shout"`},
		"no type":                      {"", "", chat("a"), connect.CodeInvalidArgument, "type"},
		"an id of more than 200 bytes": {strings.Repeat("é", 101), "chat", chat("a"), connect.CodeInvalidArgument, "id"},
		"an id with a NUL byte":        {"a\x00", "chat", chat("a"), connect.CodeInvalidArgument, "id"},
		"an id of a command's result":  {entry.ResultID("c1"), "chat", chat("a"), connect.CodeInvalidArgument, "id"},
	} {
		t.Run("refuses "+what, func(t *testing.T) {
			_, err := add(c.id, c.kind, c.payload)
			refused(t, err, c.code, c.says)
		})
	}
	for _, kind := range entry.Kinds() {
		if kind.Writer == entry.Server {
			t.Run("refuses "+kind.Type+", which arbe itself writes", func(t *testing.T) {
				_, err := add("", kind.Type, `{"command":"true","command_id":"c1","sandbox_id":"x","to":"closed","house_id":"x"}`)
				refused(t, err, connect.CodePermissionDenied, "type", kind.Type)
			})
		}
	}
	t.Run("leaves no trace of what it refuses", func(t *testing.T) {
		if after := tail(t); after != before {
			t.Errorf("the log ended at %d and ends at %d", before, after)
		}
	})
	t.Run("takes a payload nested deeply", func(t *testing.T) {
		payload := `{"text":"deep","x":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}"
		if e, err := add("deep", "chat", payload); err != nil || e.Payload != payload {
			t.Errorf("it is refused, or not kept: %v", err)
		}
	})
}

func TestAppendShowsTheWriterNothingThatOnlyReadersMaySee(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	with := func(scopes ...string) *arbe.Client {
		made, err := b.ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, Scopes: scopes})
		must(t, err)
		return b.client(made.Token.Token)
	}
	bot, err := b.ada.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: b.ada.house.Id, Name: "Bot", Runtime: "pi"})
	must(t, err)
	made, err := b.ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, AgentId: bot.Agent.Id, Scopes: []string{auth.StreamWrite}})
	must(t, err)
	bots, own, full := b.client(made.Token.Token), with(auth.StreamWrite), with(auth.StreamRead, auth.StreamWrite)
	for _, id := range []string{"secret", "later"} {
		_, err := b.ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: id, Type: "chat", Payload: chat("only for readers")})
		must(t, err)
	}
	for _, c := range []struct {
		name, text string
		client     *arbe.Client
		repeats    bool
	}{
		{"a writer who says something else", "guess", bots, false},
		{"a writer who says the same as another agent", "only for readers", bots, false},
		{"a writer who said something else before", "guess", own, false},
		{"a writer who says it again", "only for readers", own, true},
		{"one who may read too", "guess", full, false},
		{"a member", "guess", b.cyd.Client, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := c.client.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: "secret", Type: "chat", Payload: chat(c.text)})
			if !c.repeats {
				refused(t, err, connect.CodeAlreadyExists, "secret")
				if strings.Contains(err.Error(), "readers") {
					t.Errorf("the error tells what the entry says: %v", err)
				}
				return
			}
			must(t, err)
			if e := res.Entry; e.Seq != 1 || e.Id != "secret" || e.Payload != chat("only for readers") {
				t.Errorf("it is %v", e)
			}
		})
	}
	if log := b.ada.log(t, th.Id); len(log) != 2 {
		t.Errorf("the log has %d entries", len(log))
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	for i := range 120 {
		ada.say(t, th.Id, fmt.Sprint(i+1))
	}
	for _, c := range []struct {
		name        string
		with        *arbev1.ListRequest
		first, last int64 // positions, 0 for none
	}{
		{"starts at the start, with a hundred", &arbev1.ListRequest{}, 1, 100},
		{"starts behind a position", &arbev1.ListRequest{After: 100}, 101, 120},
		{"is empty at the end", &arbev1.ListRequest{After: 120}, 0, 0},
		{"takes the last ones", &arbev1.ListRequest{Last: true, Limit: 5}, 116, 120},
		{"takes those just before a position", &arbev1.ListRequest{Before: 50, Limit: 5}, 45, 49},
		{"takes what is between two positions", &arbev1.ListRequest{After: 10, Before: 14}, 11, 13},
		{"is empty between neighbours", &arbev1.ListRequest{After: 10, Before: 11}, 0, 0},
		{"is empty between positions in the wrong order", &arbev1.ListRequest{After: 14, Before: 10}, 0, 0},
		{"ends at the end, however far before is", &arbev1.ListRequest{Before: 1 << 62, Limit: 2}, 119, 120},
		{"is as long as asked", &arbev1.ListRequest{Limit: 1000}, 1, 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.with.ThreadId = th.Id
			res, err := ada.Entries.List(t.Context(), c.with)
			must(t, err)
			var want []int64
			for seq := c.first; seq > 0 && seq <= c.last; seq++ {
				want = append(want, seq)
			}
			if got := positions(res.Entries); !slices.Equal(got, want) || res.Tail != 120 {
				t.Errorf("it is %v of %d, want %d to %d of 120", got, res.Tail, c.first, c.last)
			}
		})
	}
	for what, c := range map[string]struct {
		with *arbev1.ListRequest
		code connect.Code
		says string
	}{
		"a position past the end": {&arbev1.ListRequest{After: 121}, connect.CodeOutOfRange, "the last entry is at 120"},
		"a negative position":     {&arbev1.ListRequest{After: -1}, connect.CodeInvalidArgument, "after"},
		"a negative bound":        {&arbev1.ListRequest{Before: -1}, connect.CodeInvalidArgument, "before"},
		"more than a thousand":    {&arbev1.ListRequest{Limit: 1001}, connect.CodeInvalidArgument, "limit"},
	} {
		t.Run("refuses "+what, func(t *testing.T) {
			c.with.ThreadId = th.Id
			_, err := ada.Entries.List(t.Context(), c.with)
			refused(t, err, c.code, c.says)
		})
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada

	t.Run("replays behind a position, says that it caught up, and follows", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		for range 3 {
			ada.say(t, th.Id, "before")
		}
		tail := ada.follow(t, th.Id, 1)
		tail.wants(t, 2, 3)
		if e := tail.next(t); e.GetCaughtUp().GetSeq() != 3 {
			t.Fatalf("it says %v, want that it caught up at 3", e)
		}
		b.cyd.say(t, th.Id, "after")
		tail.wants(t, 4)
	})
	t.Run("ends when the thread is deleted", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		tail := ada.follow(t, th.Id, 0)
		tail.next(t) // it runs
		_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: th.Id})
		must(t, err)
		refused(t, tail.end(), connect.CodeNotFound)
	})
	t.Run("ends when its credential does, and a client does not try again", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		made, err := ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, Scopes: []string{"stream:read"}})
		must(t, err)
		var ended error
		for event, err := range b.client(made.Token.Token).Tail(t.Context(), th.Id, 0, arbe.OnDisconnect(func(err error, _ time.Duration) { t.Errorf("it tries again after: %v", err) })) {
			if ended = err; event.GetCaughtUp() != nil {
				_, err := ada.Credentials.RevokeThreadTokens(t.Context(), &arbev1.RevokeThreadTokensRequest{ThreadId: th.Id})
				must(t, err)
			}
		}
		refused(t, ended, connect.CodeUnauthenticated, "revoked")
	})
	t.Run("ends when the caller leaves the house", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		dan := b.person(t, "Dan")
		b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", ada.house.Id, dan.id)
		tail := dan.follow(t, th.Id, 0)
		tail.next(t) // it runs
		b.exec(t, "delete from members where agent_id = $1", dan.id)
		refused(t, tail.end(), connect.CodeNotFound)
	})
	t.Run("tells the output of a command before its result", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		tail := ada.follow(t, th.Id, 0)
		said, err := ada.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: th.Id, What: &arbev1.RunCommandRequest_Command{Command: "hello"}})
		must(t, err)
		var live []byte
		for {
			e := tail.next(t)
			if d := e.GetDelta(); d.GetEntryId() == said.ResultId {
				live = append(live, d.Data...)
			}
			if r := e.GetEntry(); r.GetId() == said.ResultId {
				if r.Type != "command_result" || !strings.Contains(r.Payload, "/bin/sh -c hello") {
					t.Errorf("the result is %v", r)
				}
				break
			}
		}
		if out := string(live); out != "" && out != "/bin/sh -c hello" { // the result may overtake a delta
			t.Errorf("the live output is %q", out)
		}
	})
	t.Run("says in silence that it is alive", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		tail := ada.follow(t, th.Id, 0)
		tail.next(t)
		start := time.Now()
		if e := tail.next(t); e.GetAlive() == nil || time.Since(start) > time.Minute {
			t.Errorf("after %v it says %v", time.Since(start), e)
		}
	})
	t.Run("refuses a position past the end", func(t *testing.T) {
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		refused(t, ada.follow(t, th.Id, 1).end(), connect.CodeOutOfRange, "the last entry is at 0")
		refused(t, ada.follow(t, th.Id, -1).end(), connect.CodeInvalidArgument, "after")
	})
	t.Run("of a thread that was deleted and created again belongs to the new one", func(t *testing.T) {
		t.Parallel()
		th := ada.thread(t, &arbev1.CreateThreadRequest{Id: "twolives"})
		ada.say(t, th.Id, "in the first life")
		_, err := ada.Threads.DeleteThread(t.Context(), &arbev1.DeleteThreadRequest{Id: th.Id})
		must(t, err)
		ada.thread(t, &arbev1.CreateThreadRequest{Id: "twolives"})
		said := ada.say(t, th.Id, "in the second")
		if e := ada.follow(t, th.Id, 0).next(t).GetEntry(); e.GetId() != said.Id || e.GetSeq() != 1 {
			t.Errorf("it tells %v first", e)
		}
	})
}

// positions returns the positions of entries.
func positions(entries []*arbev1.Entry) (all []int64) {
	for _, e := range entries {
		all = append(all, e.Seq)
	}
	return all
}

// following is an open tail.
type following struct {
	stream *connect.ServerStreamForClient[arbev1.TailResponse]
	failed error
}

// follow opens a tail, which is closed at the end of the test.
func (p person) follow(t *testing.T, thread string, after int64) *following {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := p.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: thread, After: after})
	return &following{stream, err}
}

// next returns the next event.
func (f *following) next(t *testing.T) *arbev1.TailResponse {
	t.Helper()
	if f.failed != nil || !f.stream.Receive() {
		t.Fatalf("the tail ended: %v", errors.Join(f.failed, f.stream.Err()))
	}
	return f.stream.Msg()
}

// wants asserts that the next events are the entries at these positions.
func (f *following) wants(t *testing.T, seqs ...int64) {
	t.Helper()
	for _, seq := range seqs {
		if e := f.next(t); e.GetEntry().GetSeq() != seq {
			t.Fatalf("it tells %v, want entry %d", e, seq)
		}
	}
}

// end returns the error that ends the tail.
func (f *following) end() error {
	for f.failed == nil && f.stream.Receive() {
	}
	if f.failed != nil {
		return f.failed
	}
	return f.stream.Err()
}

func TestWhoIsWritingIsToldToTails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	f := b.cyd.follow(t, th.Id, 0)
	if e := f.next(t); e.GetCaughtUp() == nil {
		t.Fatalf("it begins with %v", e)
	}
	began := time.Now()
	for range 50 { // once per key press
		_, err := b.ada.Entries.ShowTyping(t.Context(), &arbev1.ShowTypingRequest{ThreadId: th.Id})
		must(t, err)
	}
	if e := f.next(t); e.GetTyping().GetAgentId() != b.ada.id {
		t.Errorf("a follower gets %v", e)
	}
	said, err := b.ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "hello"})
	must(t, err)
	more := 0
	for {
		e := f.next(t)
		if e.GetEntry().GetId() == said.Entry.Id {
			break
		}
		if e.GetTyping() != nil {
			more++
		}
	}
	if most := 1 + int(time.Since(began)/(2*time.Second)); more > most {
		t.Errorf("a follower gets %d events more, want at most %d", more, most)
	}
	list, err := b.ada.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: th.Id})
	must(t, err)
	if list.Tail != 1 {
		t.Errorf("the log has %d entries, want what was said alone", list.Tail)
	}
}

func TestSay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	say := func(t *testing.T, c *arbe.Client, req *arbev1.SayRequest) *arbev1.SayResponse {
		t.Helper()
		req.ThreadId = th.Id
		res, err := c.Entries.Say(t.Context(), req)
		must(t, err)
		return res
	}
	t.Run("is a chat, character by character", func(t *testing.T) {
		const text = "caf\u00e9 <b> & 🦊!\n/run"
		res := say(t, ada.Client, &arbev1.SayRequest{Id: "one", Text: text, ReplyTo: "x"})
		if e := res.Entry; e.Seq != 1 || e.Id != "one" || e.AuthorAgentId != ada.id || e.Type != "chat" || e.Payload != `{"text":"café <b> & 🦊!\n/run","reply_to":"x","via":{"client":"api","key":"test"}}` || res.ResultId != "" {
			t.Errorf("it is %v", res)
		}
	})
	t.Run("is a command, whose end is reported", func(t *testing.T) {
		res := say(t, b.cyd.Client, &arbev1.SayRequest{Text: "/run make test"})
		if e := res.Entry; e.Type != "command" || e.AuthorAgentId != b.cyd.id || !strings.Contains(e.Payload, `"command":"make test"`) {
			t.Fatalf("it is %v", res)
		}
		for event, err := range ada.Tail(t.Context(), th.Id, res.Entry.Seq) {
			must(t, err)
			if event.GetEntry().GetId() == res.ResultId {
				break
			}
		}
	})
	t.Run("is a chat when it is meant literally", func(t *testing.T) {
		if e := say(t, ada.Client, &arbev1.SayRequest{Text: "!ls", Literal: true}).Entry; e.Type != "chat" || e.Payload != `{"text":"!ls","via":{"client":"api","key":"test"}}` {
			t.Errorf("it is %v", e)
		}
	})
	t.Run("repeated with the same id is the first entry, and something else with it is refused", func(t *testing.T) {
		first := say(t, ada.Client, &arbev1.SayRequest{Id: "again", Text: "!true"})
		if again := say(t, ada.Client, &arbev1.SayRequest{Id: "again", Text: "!true"}); again.Entry.Seq != first.Entry.Seq || again.ResultId != first.ResultId {
			t.Errorf("it is %v", again)
		}
		for _, text := range []string{"!false", "true"} {
			_, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Id: "again", Text: text})
			refused(t, err, connect.CodeAlreadyExists, "again")
		}
		_, err := b.cyd.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Id: "again", Text: "!true"})
		refused(t, err, connect.CodeAlreadyExists, "again")
	})
	t.Run("with the thread's token is a chat, and the answer reveals no other entry", func(t *testing.T) {
		made, err := ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id, Scopes: []string{auth.StreamWrite}})
		must(t, err)
		writer := b.client(made.Token.Token)
		if e := say(t, writer, &arbev1.SayRequest{Text: "!ls"}).Entry; e.Type != "chat" || e.Payload != `{"text":"!ls","confined":true,"via":{"client":"api"}}` {
			t.Errorf("it is %v", e)
		}
		_, err = writer.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Id: "again", Text: "guess"})
		refused(t, err, connect.CodeAlreadyExists, "again")
		if strings.Contains(err.Error(), "true") {
			t.Errorf("the error tells what the entry says: %v", err)
		}
	})
	t.Run("refuses what cannot be said, and leaves no trace", func(t *testing.T) {
		said := func() (n int) {
			for _, e := range ada.log(t, th.Id) {
				if e.Type != "command_result" { // the position of a result varies
					n++
				}
			}
			return n
		}
		before := said()
		for what, c := range map[string]struct {
			req  *arbev1.SayRequest
			code connect.Code
			says string
		}{
			"nothing":              {&arbev1.SayRequest{}, connect.CodeInvalidArgument, "text: it is empty"},
			"a command of nothing": {&arbev1.SayRequest{Text: "!"}, connect.CodeInvalidArgument, "nothing to run"},
			"a text of 1 MiB":      {&arbev1.SayRequest{Text: strings.Repeat("x", 1<<20)}, connect.CodeResourceExhausted, "text"},
			"a result's id":        {&arbev1.SayRequest{Id: "c.result", Text: "hello"}, connect.CodeInvalidArgument, "id"},
			"a NUL byte":           {&arbev1.SayRequest{Text: "!ls \x00"}, connect.CodeInvalidArgument, "NUL"},
		} {
			c.req.ThreadId = th.Id
			_, err := ada.Entries.Say(t.Context(), c.req)
			t.Run(what, func(t *testing.T) { refused(t, err, c.code, c.says) })
		}
		if after := said(); after != before {
			t.Errorf("it left %d entries", after-before)
		}
	})
}

func TestTypedEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	appended, err := b.ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: "typed", Chat: &arbev1.Chat{Text: "a < b", ReplyTo: "other"}})
	must(t, err)
	t.Run("a chat is appended as a message, and is the entry that its text would be", func(t *testing.T) {
		if e := appended.Entry; e.Type != "chat" || e.Payload != `{"text":"a < b","reply_to":"other"}` || e.GetChat().GetText() != "a < b" {
			t.Errorf("it is %v", e)
		}
		again, err := b.ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Id: "typed", Type: "chat", Payload: appended.Entry.Payload})
		if err != nil || again.Entry.Seq != appended.Entry.Seq || again.Entry.Typed != nil {
			t.Errorf("the same as text is %v (%v)", again, err)
		}
	})
	t.Run("an entry is given once", func(t *testing.T) {
		for says, req := range map[string]*arbev1.AppendRequest{
			"the entry twice": {ThreadId: th.Id, Type: "chat", Payload: `{"text": "hi"}`, Chat: &arbev1.Chat{Text: "hi"}},
			"no entry":        {ThreadId: th.Id},
			"payload":         {ThreadId: th.Id, Type: "chat"},
			"type":            {ThreadId: th.Id, Payload: `{"text": "hi"}`},
			"text":            {ThreadId: th.Id, Chat: &arbev1.Chat{}},
		} {
			_, err := b.ada.Entries.Append(t.Context(), req)
			refused(t, err, connect.CodeInvalidArgument, says)
		}
	})
	t.Run("a list has messages when it is asked for them", func(t *testing.T) {
		for _, typed := range []bool{false, true} {
			list, err := b.ada.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: th.Id, Typed: typed, Last: true, Limit: 1})
			must(t, err)
			if e := list.Entries[0]; (e.GetChat().GetText() == "a < b") != typed || e.Payload != appended.Entry.Payload {
				t.Errorf("typed %t: it is %v", typed, e)
			}
		}
	})
	t.Run("so does a tail", func(t *testing.T) {
		for _, typed := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tail, err := b.ada.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: th.Id, Typed: typed, After: appended.Entry.Seq - 1})
			must(t, err)
			for tail.Receive() && tail.Msg().GetEntry() == nil {
			}
			if e := tail.Msg().GetEntry(); (e.GetChat().GetReplyTo() == "other") != typed {
				t.Errorf("typed %t: it is %v (%v)", typed, e, tail.Err())
			}
		}
	})
}

package arbe_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// An answeringServer has one thread and one bot, and sends the events of a script after each question.
type answeringServer struct {
	arbev1connect.UnimplementedEntryServiceHandler
	arbev1connect.UnimplementedThreadServiceHandler
	arbev1connect.UnimplementedBotServiceHandler
	// direct makes the thread a direct message to the bot.
	direct bool
	// events are sent on each connection. ends then says how the connection ends; nil keeps it open.
	events []*arbev1.TailResponse
	ends   func() error

	said *arbev1.SayRequest
}

const (
	theBot  = "0b8d3f0e-0000-4000-8000-000000000001"
	theTurn = "turn1"
)

func (s *answeringServer) GetThread(_ context.Context, req *arbev1.GetThreadRequest) (*arbev1.GetThreadResponse, error) {
	t := &arbev1.Thread{Id: req.GetId(), HouseId: "house"}
	if s.direct {
		t.ParentAgentId = theBot
	}
	return &arbev1.GetThreadResponse{Thread: t}, nil
}

func (s *answeringServer) CreateThread(_ context.Context, req *arbev1.CreateThreadRequest) (*arbev1.CreateThreadResponse, error) {
	if req.GetParentAgentId() != theBot || !req.GetReuse() {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("not the direct message"))
	}
	return &arbev1.CreateThreadResponse{Thread: &arbev1.Thread{Id: "direct", HouseId: req.GetHouseId(), ParentAgentId: theBot}}, nil
}

func (s *answeringServer) GetBot(_ context.Context, req *arbev1.GetBotRequest) (*arbev1.GetBotResponse, error) {
	if req.GetHouseId() != "house" || req.GetHandle() != "arbe" && req.GetId() != theBot {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such bot"))
	}
	return &arbev1.GetBotResponse{Bot: &arbev1.Bot{Id: theBot, Handle: "arbe"}}, nil
}

func (s *answeringServer) Say(_ context.Context, req *arbev1.SayRequest) (*arbev1.SayResponse, error) {
	s.said = req
	return &arbev1.SayResponse{Entry: &arbev1.Entry{Id: req.GetId(), Seq: 1}}, nil
}

func (s *answeringServer) Tail(ctx context.Context, req *arbev1.TailRequest, stream *connect.ServerStream[arbev1.TailResponse]) error {
	for _, e := range s.events {
		if entry := e.GetEntry(); entry != nil && entry.GetSeq() <= req.GetAfter() {
			continue
		}
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	if s.ends != nil {
		return s.ends()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *answeringServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewEntryServiceHandler(s))
	mux.Handle(arbev1connect.NewThreadServiceHandler(s))
	mux.Handle(arbev1connect.NewBotServiceHandler(s))
	return mux
}

// client serves s and returns a client of it.
func (s *answeringServer) client(t *testing.T) *arbe.Client {
	t.Helper()
	srv := httptest.NewServer(s.handler())
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return arbe.New(srv.URL, "")
}

// asked asks s; see [askedBy].
func asked(t *testing.T, s *answeringServer, q arbe.Question) (text string, answer *arbe.Answer, err error) {
	t.Helper()
	return askedBy(t, s.client(t), q)
}

// askedBy collects the pieces of a response: the text, with <again> and the types of entries at their places, and the answer.
func askedBy(t *testing.T, c *arbe.Client, q arbe.Question) (text string, answer *arbe.Answer, err error) {
	t.Helper()
	var written strings.Builder
	for piece, failed := range c.Ask(t.Context(), q) {
		switch {
		case failed != nil:
			err = failed
		case piece.Entry != nil:
			written.WriteString("<" + piece.Entry.GetType() + ">")
		case piece.Again:
			written.WriteString("<again>")
		case piece.Answer != nil:
			answer = piece.Answer
		default:
			written.WriteString(piece.Text)
		}
	}
	return written.String(), answer, err
}

// The events of a turn that answers the question "q".

func typed(seq int64, kind string, of *arbev1.Entry) *arbev1.TailResponse {
	of.Seq, of.Type = seq, kind
	return entryEvent(of)
}

func started(seq int64) *arbev1.TailResponse {
	return typed(seq, "started", &arbev1.Entry{Typed: &arbev1.Entry_TurnStarted{TurnStarted: &arbev1.TurnStarted{TurnId: theTurn, AgentId: theBot, EntryId: "q"}}})
}

func step(seq int64, text string) *arbev1.TailResponse {
	return typed(seq, "step", &arbev1.Entry{Typed: &arbev1.Entry_PiAssistant{PiAssistant: &arbev1.PiAssistant{
		Turn: theTurn, Content: []*arbev1.PiBlock{{Type: "text", Text: text}, {Type: "toolCall", Name: "say"}},
	}}})
}

func answered(seq int64, text string) *arbev1.TailResponse {
	return typed(seq, "chat", &arbev1.Entry{Typed: &arbev1.Entry_Chat{Chat: &arbev1.Chat{Text: text, Turn: &arbev1.TurnSummary{TurnId: theTurn, Answers: []string{"q"}}}}})
}

// writes returns a delta with lines of text at an offset, and the offset after it.
func writes(id string, offset int, texts ...string) (*arbev1.TailResponse, int) {
	var data []byte
	for _, text := range texts {
		line, err := json.Marshal(map[string]any{"kind": "text", "text": text})
		if err != nil {
			panic(err)
		}
		data = append(append(data, line...), '\n')
	}
	delta := &arbev1.Delta{EntryId: id, Offset: int64(offset), Data: data}
	return &arbev1.TailResponse{Event: &arbev1.TailResponse_Delta{Delta: delta}}, offset + len(data)
}

func TestAskYieldsTheTextOfAnAnswerOnce(t *testing.T) {
	t.Parallel()
	const first, second = "turn." + theTurn + ".1~1.1", "turn." + theTurn + ".2~1.2"
	one, at := writes(first, 0, " \nLet me ", "look. ")
	half := one.GetDelta().GetData()
	part := func(from, to int) *arbev1.TailResponse {
		return &arbev1.TailResponse{Event: &arbev1.TailResponse_Delta{Delta: &arbev1.Delta{EntryId: first, Offset: int64(from), Data: half[from:to]}}}
	}
	two, _ := writes(second, 0, "It ", "is")
	late, _ := writes(second, 500, " red.")
	retry, _ := writes("turn."+theTurn+".2~2.1", 0, "They are")
	other, _ := writes("turn.another.1~1.1", 0, "not ours")
	output := &arbev1.TailResponse{Event: &arbev1.TailResponse_Delta{Delta: &arbev1.Delta{EntryId: "command.result", Data: []byte("output")}}}
	for name, test := range map[string]struct {
		events []*arbev1.TailResponse
		want   string
	}{
		"whole":                {[]*arbev1.TailResponse{started(2), one, step(3, " \nLet me look. "), two, answered(4, "It is red.")}, "<started>Let me look.<step>It is red."},
		"without deltas":       {[]*arbev1.TailResponse{started(2), step(3, "Let me look."), answered(4, "It is red.")}, "<started>Let me look.<step>It is red."},
		"in pieces, repeated":  {[]*arbev1.TailResponse{started(2), part(0, 5), part(5, at), part(3, 20), step(3, "Let me look."), answered(4, "Yes")}, "<started>Let me look.<step>Yes"},
		"a gap":                {[]*arbev1.TailResponse{started(2), two, late, answered(3, "It is green and red.")}, "<started>It is green and red."},
		"cut off":              {[]*arbev1.TailResponse{started(2), two, retry, answered(3, "They are.")}, "<started>It is<again>They are."},
		"another text":         {[]*arbev1.TailResponse{started(2), two, answered(3, "Something else.")}, "<started>It is<again>Something else."},
		"others at the time":   {[]*arbev1.TailResponse{other, started(2), other, output, two, other, answered(3, "It is.")}, "<started>It is."},
		"a delta of no answer": {[]*arbev1.TailResponse{two, started(2), answered(3, "Yes.")}, "<started>Yes."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, answer, err := asked(t, &answeringServer{events: test.events}, arbe.Question{Thread: "thread", ID: "q", Text: "?"})
			if err != nil || answer == nil || answer.Outcome != arbe.Answered {
				t.Fatalf("it ended with %+v, %v", answer, err)
			}
			if text != test.want {
				t.Errorf("it yielded %q, want %q", text, test.want)
			}
		})
	}
}

// A turn that was already writing its answer has not seen a question that was passed to it, so another turn answers it.
func TestAskWaitsForTheTurnThatKnowsTheQuestion(t *testing.T) {
	t.Parallel()
	const next = "turn2"
	steered := typed(2, "steered", &arbev1.Entry{Typed: &arbev1.Entry_TurnSteered{TurnSteered: &arbev1.TurnSteered{TurnId: theTurn, AgentId: theBot, EntryId: "q"}}})
	before := typed(3, "chat", &arbev1.Entry{Typed: &arbev1.Entry_Chat{Chat: &arbev1.Chat{Text: "to another", Turn: &arbev1.TurnSummary{TurnId: theTurn, Answers: []string{"p"}}}}})
	begun := typed(4, "started", &arbev1.Entry{Typed: &arbev1.Entry_TurnStarted{TurnStarted: &arbev1.TurnStarted{TurnId: next, AgentId: theBot, EntryId: "q"}}})
	after := typed(5, "chat", &arbev1.Entry{Typed: &arbev1.Entry_Chat{Chat: &arbev1.Chat{Text: "to this", Turn: &arbev1.TurnSummary{TurnId: next, Answers: []string{"q"}}}}})
	text, answer, err := asked(t, &answeringServer{events: []*arbev1.TailResponse{steered, before, begun, after}}, arbe.Question{Thread: "thread", ID: "q", Text: "?"})
	if err != nil || answer == nil || answer.Text != "to this" || answer.Turn != next {
		t.Errorf("it ended with %+v, %v", answer, err)
	}
	if want := "<steered><chat><started>to this"; text != want {
		t.Errorf("it yielded %q, want %q", text, want)
	}
}

func TestAskSaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	ended := typed(3, "ended", &arbev1.Entry{Typed: &arbev1.Entry_TurnEnded{TurnEnded: &arbev1.TurnEnded{
		TurnId: theTurn, AgentId: theBot, Outcome: "failed", Reason: "bad_key", Message: "the key is wrong", Next: "set another", Summary: &arbev1.TurnSummary{Steps: 1},
	}}})
	_, answer, err := asked(t, &answeringServer{events: []*arbev1.TailResponse{started(2), ended}}, arbe.Question{Thread: "thread", ID: "q", Text: "?"})
	if err != nil || answer == nil || answer.Outcome != arbe.Failed || answer.Reason != "bad_key" || answer.Next != "set another" || answer.Summary.GetSteps() != 1 {
		t.Errorf("a turn that failed ended with %+v, %v", answer, err)
	}
	skipped := typed(2, "skipped", &arbev1.Entry{Typed: &arbev1.Entry_Skipped{Skipped: &arbev1.Skipped{AgentId: theBot, EntryId: "q", Reason: "cooldown"}}})
	_, answer, err = asked(t, &answeringServer{events: []*arbev1.TailResponse{skipped}}, arbe.Question{Thread: "thread", ID: "q", Text: "?"})
	if err != nil || answer == nil || answer.Outcome != arbe.Skipped || answer.Reason != "cooldown" {
		t.Errorf("a bot that was not to answer ended with %+v, %v", answer, err)
	}
	_, answer, err = asked(t, &answeringServer{}, arbe.Question{Thread: "thread", ID: "q", Text: "?", Patience: 100 * time.Millisecond})
	if err != nil || answer == nil || answer.Outcome != arbe.Unanswered {
		t.Errorf("a bot that did not begin ended with %+v, %v", answer, err)
	}
}

func TestAskMentionsTheBotWhereThatIsNeeded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		direct       bool
		thread, text string
		want         string
	}{
		"a thread":                 {false, "thread", "what now?", "@arbe what now?"},
		"several lines":            {false, "thread", "- one\n- two", "@arbe\n\n- one\n- two"},
		"mentioned already":        {false, "thread", "@Arbe: what now?", "@Arbe: what now?"},
		"another is mentioned":     {false, "thread", "@arbeiter too", "@arbe @arbeiter too"},
		"a command is a chat":      {true, "thread", "/run it", "/run it"},
		"a direct message":         {true, "thread", "what now?", "what now?"},
		"the direct message to it": {false, "", "what now?", "what now?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &answeringServer{direct: test.direct, events: []*arbev1.TailResponse{started(2), answered(3, "yes")}}
			if _, _, err := asked(t, s, arbe.Question{House: "house", Thread: test.thread, ID: "q", Text: test.text}); err != nil {
				t.Fatal(err)
			}
			if s.said.GetText() != test.want || !s.said.GetLiteral() {
				t.Errorf("it said %q (literal: %v), want %q", s.said.GetText(), s.said.GetLiteral(), test.want)
			}
		})
	}
}

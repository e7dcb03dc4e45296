package rpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// answer is the answer to a plain HTTP request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a body as curl would.
func (b *bench) post(t *testing.T, procedure, contentType, token string, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+procedure, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", contentType)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) answer {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	return answer{res.StatusCode, res.Header, body}
}

// refused asserts that the answer is an error in Connect's JSON with this code and a next step.
func (a answer) refused(t *testing.T, status int, code connect.Code, says string) {
	t.Helper()
	var failure struct{ Code, Message string }
	if err := json.Unmarshal(a.body, &failure); err != nil || a.status != status || failure.Code != code.String() || !strings.Contains(failure.Message, says) {
		t.Errorf("it is %d %s, want %d with %v and %q", a.status, a.body, status, code, says)
	}
	a.saysNext(t)
}

func (a answer) saysNext(t *testing.T) {
	t.Helper()
	if next := a.header.Values(arbev1.NextHeader); len(next) != 1 || next[0] == "" {
		t.Errorf("what to do next is %q, want one sentence", next)
	}
}

func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	const appendProcedure = arbev1connect.EntryServiceAppendProcedure
	tail := func(t *testing.T) int64 {
		t.Helper()
		return ask[int64](t, b, "select coalesce(max(e.seq), 0) from streams s join entries e on e.stream_id = s.id where s.name = $1", th.StreamId)
	}

	t.Run("is not cached, although it is a GET", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+arbev1connect.HouseServiceListHousesProcedure+"?connect=v1&encoding=json&message=%7B%7D", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+b.ada.key)
		if got := send(t, req); got.status != http.StatusOK || got.header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("it answers %d, Cache-Control %q", got.status, got.header.Get("Cache-Control"))
		}
	})

	t.Run("takes JSON and answers in JSON, without a word about what to do next", func(t *testing.T) {
		got := b.post(t, appendProcedure, "application/json", b.ada.key,
			[]byte(`{"threadId":"`+th.Id+`","id":"curl","type":"chat","payload":"{\"text\":\"hello\"}"}`))
		var res struct {
			Entry struct{ Seq, ID, Payload string }
		}
		if err := json.Unmarshal(got.body, &res); err != nil || got.status != http.StatusOK || res.Entry.ID != "curl" || res.Entry.Seq != "1" || res.Entry.Payload != `{"text":"hello"}` {
			t.Errorf("it is %d %s", got.status, got.body)
		}
		if next := got.header.Get(arbev1.NextHeader); next != "" {
			t.Errorf("it says %q", next)
		}
	})
	t.Run("takes the browser's cookie for a credential", func(t *testing.T) {
		session := b.login(t, b.ada)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+arbev1connect.AgentServiceWhoAmIProcedure, strings.NewReader("{}"))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.AddCookie(&http.Cookie{Name: auth.SessionCookie, Value: session})
		if got := send(t, req); got.status != http.StatusOK || !strings.Contains(string(got.body), `"credential":"session"`) {
			t.Errorf("it is %d %s", got.status, got.body)
		}
	})
	t.Run("answers reads to GET", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			b.url+arbev1connect.ThreadServiceGetThreadProcedure+`?encoding=json&message={"id":"`+th.Id+`"}`, nil)
		must(t, err)
		req.Header.Set("Authorization", "bearer "+b.ada.key)
		if got := send(t, req); got.status != http.StatusOK || !strings.Contains(string(got.body), th.Id) {
			t.Errorf("it is %d %s", got.status, got.body)
		}
	})

	before := tail(t)
	invalid := "text \xff\xfe"
	raw, err := proto.Marshal(&arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: chat("PLACE")})
	must(t, err)
	for what, c := range map[string]struct {
		contentType string
		body        []byte
		status      int
		code        connect.Code
		says        string
	}{
		"JSON in invalid UTF-8":     {"application/json", []byte(`{"threadId":"` + th.Id + `","type":"chat","payload":"` + invalid + `"}`), 400, connect.CodeInvalidArgument, "UTF-8"},
		"protobuf in invalid UTF-8": {"application/proto", bytes.Replace(raw, []byte("PLACE"), []byte("\xff\xfe\xff\xfe\xff"), 1), 400, connect.CodeInvalidArgument, "UTF-8"},
		"what is not JSON":          {"application/json", []byte(`{"threadId":`), 400, connect.CodeInvalidArgument, "unmarshal"},
		"what is not protobuf":      {"application/proto", []byte("hello"), 400, connect.CodeInvalidArgument, "unmarshal"},
		"a field nobody knows":      {"application/json", []byte(`{"thread":"` + th.Id + `"}`), 400, connect.CodeInvalidArgument, "thread"},
		"a field left out":          {"application/json", []byte(`{"type":"chat","payload":"{}"}`), 400, connect.CodeInvalidArgument, "thread_id"},
		"more than 5 MiB":           {"application/json", bytes.Repeat([]byte(" "), 6<<20), 429, connect.CodeResourceExhausted, "larger than"},
	} {
		t.Run("refuses "+what, func(t *testing.T) {
			b.post(t, appendProcedure, c.contentType, b.ada.key, c.body).refused(t, c.status, c.code, c.says)
		})
	}
	t.Run("authenticates before it reads the body", func(t *testing.T) {
		b.post(t, appendProcedure, "application/json", "", []byte("{{{")).refused(t, 401, connect.CodeUnauthenticated, "nobody is logged in")
	})
	t.Run("refuses an unknown content type", func(t *testing.T) {
		form := b.post(t, appendProcedure, "application/x-www-form-urlencoded", b.ada.key, []byte("a=b"))
		if form.status != http.StatusUnsupportedMediaType {
			t.Errorf("it is %d", form.status)
		}
		form.saysNext(t)
	})
	for _, path := range []string{"/" + arbev1connect.EntryServiceName + "/Nope", "/arbe.v1.NopeService/Nope", "/arbe.v1.NopeService/", "/" + arbev1connect.EntryServiceName + "/", "/arbe.v1."} {
		t.Run("refuses the unknown procedure "+path, func(t *testing.T) {
			unknown := b.post(t, path, "application/json", b.ada.key, []byte("{}"))
			unknown.refused(t, http.StatusNotImplemented, connect.CodeUnimplemented, path)
			if kind, reason := unknown.header.Get("Content-Type"), unknown.header.Get(arbev1.ReasonHeader); kind != "application/json" || reason != "UNIMPLEMENTED" || !bytes.Contains(unknown.body, []byte(`"arbe.v1.ErrorInfo"`)) {
				t.Errorf("it is %s with the reason %q: %s", kind, reason, unknown.body)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
			must(t, err)
			send(t, req).refused(t, http.StatusNotImplemented, connect.CodeUnimplemented, path)
		})
	}
	t.Run("leaves no trace of what it refuses", func(t *testing.T) {
		if after := tail(t); after != before {
			t.Errorf("the log ended at %d and ends at %d", before, after)
		}
	})
}

// A next step is for the client that gets it: only people who use the command line can follow its verbs.
func TestNextStepsNameVerbsOnlyToTheCommandLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := func(t *testing.T, agent string) (inHeader, inDetail string) {
		t.Helper()
		threads := arbev1connect.NewThreadServiceClient(&http.Client{Transport: userAgent(agent)}, b.url)
		ctx, call := connect.NewClientContext(t.Context())
		call.RequestHeader().Set("Authorization", "Bearer "+b.ada.key)
		_, err := threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: "nosuchthread"})
		refused(t, err, connect.CodeNotFound, "there is no thread")
		failure, _ := errors.AsType[*connect.Error](err)
		return failure.Meta().Get(arbev1.NextHeader), arbev1.ErrorInfoOf(err).Next
	}
	for agent, want := range map[string]string{
		arbev1.CLIAgent + "/v1.2.3 connect-go/1.21.1": "list the threads with: arbe thread list",
		aPage:                              "list the threads with: arbe thread list",
		"arbe-go/v1.2.3 connect-go/1.21.1": "list the threads",
		"connect-es/2":                     "list the threads",
		"curl/8":                           "list the threads",
		"arbe-client-of-mine/1":            "list the threads",
	} {
		if header, detail := next(t, agent); header != want || detail != want {
			t.Errorf("%s is told %q in the header and %q in the detail, want %q", agent, header, detail, want)
		}
	}
}

// aPage stands for the web app, in place of a User-Agent.
const aPage = "a page"

// userAgent is a transport whose requests have this User-Agent.
type userAgent string

func (u userAgent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Header.Set("User-Agent", string(u)); u == aPage {
		r.Header.Set(arbev1.PagesHeader, "1")
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestEveryProtocol(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)

	for name, option := range map[string]connect.ClientOption{
		"Connect": connect.WithClientOptions(), "Connect with JSON": connect.WithProtoJSON(),
		"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			entries := arbev1connect.NewEntryServiceClient(&http.Client{Transport: h2}, b.url, option)
			ctx, info := connect.NewClientContext(t.Context())
			info.RequestHeader().Set("Authorization", "Bearer "+b.ada.key)

			said, err := entries.Append(ctx, &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: chat(name)})
			must(t, err)
			tail, err := entries.Tail(ctx, &arbev1.TailRequest{ThreadId: th.Id, After: said.Entry.Seq - 1})
			must(t, err)
			if !tail.Receive() || tail.Msg().GetEntry().GetId() != said.Entry.Id {
				t.Errorf("the tail tells %v, %v", tail.Msg(), tail.Err())
			}
			tail.Close()

			_, past := entries.List(ctx, &arbev1.ListRequest{ThreadId: th.Id, After: 1 << 40})
			refused(t, past, connect.CodeOutOfRange, "past the end")
			_, invalid := entries.List(ctx, &arbev1.ListRequest{ThreadId: th.Id, After: -1})
			refused(t, invalid, connect.CodeInvalidArgument, "after")
			_, large := entries.Append(ctx, &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: chat(strings.Repeat("x", 6<<20))})
			refused(t, large, connect.CodeResourceExhausted, "larger than")
			_, nobody := entries.List(t.Context(), &arbev1.ListRequest{ThreadId: th.Id})
			refused(t, nobody, connect.CodeUnauthenticated, "nobody is logged in")
			tail, err = entries.Tail(ctx, &arbev1.TailRequest{ThreadId: "nosuchthread"})
			must(t, err)
			for tail.Receive() {
			}
			refused(t, tail.Err(), connect.CodeNotFound, "there is no thread")
			tail.Close()
			nope := connect.NewClient[arbev1.ListRequest, arbev1.ListResponse](&http.Client{Transport: h2}, b.url+"/arbe.v1.NopeService/Nope", option)
			_, unknown := nope.CallUnary(ctx, connect.NewRequest(&arbev1.ListRequest{}))
			refused(t, unknown, connect.CodeUnimplemented, "this server has no procedure")
		})
	}
}

func TestAFieldThatTheContractDoesNotHave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	said := b.ada.say(t, th.Id, "before")
	for name, c := range map[string]struct{ procedure, body, says string }{
		"is refused by name":                {arbev1connect.EntryServiceSayProcedure, `{"threadId": "` + th.Id + `", "text": "!ls", "literally": true}`, `unknown field "literally"`},
		"is refused in a message, too":      {arbev1connect.EnvironmentServiceCreateEnvironmentProcedure, `{"houseId": "` + b.ada.house.Id + `", "name": "e", "config": {"limits": {"memory": 1}}}`, `unknown field "memory"`},
		"is refused of a call to read":      {arbev1connect.EntryServiceListProcedure, `{"threadId": "` + th.Id + `", "pageSize": 1}`, `unknown field "pageSize"`},
		"is not what is wrong with a type":  {arbev1connect.EntryServiceSayProcedure, `{"threadId": 1}`, "cannot be read at"},
		"is not what is wrong with no body": {arbev1connect.EntryServiceSayProcedure, ``, "send {}"},
		"is not what is wrong with no JSON": {arbev1connect.EntryServiceSayProcedure, `{"threadId": `, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.post(t, c.procedure, "application/json", b.ada.key, []byte(c.body))
			got.refused(t, http.StatusBadRequest, connect.CodeInvalidArgument, c.says)
			if strings.Contains(string(got.body), "arbev1") || strings.Contains(string(got.body), "proto:") {
				t.Errorf("it says %s", got.body)
			}
		})
	}
	t.Run("is refused at the start of a stream, too", func(t *testing.T) {
		body := []byte(`{"threadId": "` + th.Id + `", "from": 1}`)
		frame := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
		got := b.post(t, arbev1connect.EntryServiceTailProcedure, "application/connect+json", b.ada.key, frame)
		if !strings.Contains(string(got.body), `unknown field \"from\"`) || !strings.Contains(string(got.body), "invalid_argument") {
			t.Errorf("it says %s", got.body)
		}
	})
	t.Run("is ignored in a binary message, which a newer client sends", func(t *testing.T) {
		body, err := proto.Marshal(&arbev1.ListRequest{ThreadId: th.Id})
		must(t, err)
		got := b.post(t, arbev1connect.EntryServiceListProcedure, "application/proto", b.ada.key, append(body, 0xf8, 0x07, 1)) // field 127
		list := &arbev1.ListResponse{}
		if err := proto.Unmarshal(got.body, list); err != nil || got.status != http.StatusOK || list.Tail != said.Seq {
			t.Errorf("it answers %d %q (%v), and %v", got.status, got.body, err, list)
		}
	})
}

func TestAnErrorHasADetail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Run("that says what to do next, as it was written", func(t *testing.T) {
		_, err := b.ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: "nowhere"})
		info := arbev1.ErrorInfoOf(err)
		if failure, ok := errors.AsType[*connect.Error](err); !ok || len(failure.Details()) != 1 || info.Next == "" || info.Next != arbe.Next(err) {
			t.Errorf("it says %v with %v", err, info)
		}
	})
	t.Run("also when the request is at fault", func(t *testing.T) {
		_, err := b.ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{})
		failure, ok := errors.AsType[*connect.Error](err)
		if !ok || !strings.Contains(arbe.Next(err), "proto/arbe/v1") {
			t.Fatalf("it says %v, and next %q", err, arbe.Next(err))
		}
		found := false
		for _, d := range failure.Details() {
			value, _ := d.Value()
			_, is := value.(*arbev1.ErrorInfo)
			found = found || is
		}
		if !found {
			t.Errorf("its details are %v", failure.Details())
		}
	})
	t.Run("which a person reads with curl", func(t *testing.T) {
		got := b.post(t, arbev1connect.ThreadServiceGetThreadProcedure, "application/json", b.ada.key, []byte(`{"id": "nowhere"}`))
		var failure struct {
			Details []struct {
				Type  string
				Debug struct{ Next string }
			}
		}
		if err := json.Unmarshal(got.body, &failure); err != nil || len(failure.Details) != 1 || failure.Details[0].Type != "arbe.v1.ErrorInfo" || failure.Details[0].Debug.Next == "" {
			t.Errorf("it is %s (%v)", got.body, err)
		}
	})
}

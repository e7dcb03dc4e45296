package web_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
	"github.com/arbe-dev/arbe/web"
)

// fake implements the services in memory, so that a test can put anything into a page. It has one house, and the session
// "good" is Ada's.
type fake struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	house   *arbev1.House
	me      *arbev1.Agent
	agents  []*arbev1.Agent
	threads map[string]*arbev1.Thread
	logs    map[string][]*arbev1.Entry
	deltas  map[string][]*arbev1.Delta
	boxes   map[string]*arbev1.Sandbox
	kept    []*arbev1.Artifact
	// bytes holds the bytes of artifacts, by id.
	bytes map[string]string
	// tails counts the open tails, and calls counts the unary calls. called counts them by method.
	tails, calls int
	called       map[string]int
	// broken holds errors for all unary calls of a method, or for one of them: "List 3" is its third call.
	broken map[string]error
	// secure is set before start, for an app that browsers reach over https, and logger for one whose log a test reads.
	secure bool
	logger *slog.Logger
	// ended lists the sessions that were logged out.
	ended []string
	// stoppedTurns and retriedTurns are the turns that somebody asked to stop or retry.
	stoppedTurns, retriedTurns []string
	// runs are the requests about runs: "stop thread", "continue thread fresh".
	runs []string
	// once has the ids of requests that another agent continues a thread.
	once map[string]bool
	// answered are the answers to requests for approval: "id verdict reason".
	answered []string
	// allowed are the hosts that were allowed: "environment [host] thread".
	allowed []string
	// secrets are the values that were set, by name.
	secrets map[string]string
	// typed lists the threads and agents of all typing signals.
	typed []string
	// sessions are the reader's other sessions.
	sessions []*arbev1.Session
	// used is what the models of every thread have used.
	used *arbev1.ThreadUsage
	// old is how many threads, and how many artifacts, a retention would delete.
	old int64
	// redeemed counts the used login links.
	redeemed int
	// deviceAnswers are the codes of logins that were answered, with the answers.
	deviceAnswers []string
	// fail, while set, is the error of every append and run.
	fail error
	now  time.Time
	// deleted says that somebody deleted the house.
	deleted bool
	// unnamed says that the reader's name is made up.
	unnamed bool
	// models are the models of the house; nil for a server that cannot list them. recipes are its environments, and invites its
	// pending invites.
	models  *arbev1.ListModelsResponse
	recipes []*arbev1.Environment
	invites []*arbev1.Invite
	// notified are the reader's settings of notifications and their devices, and pushed the devices that were added.
	notified arbev1.GetNotificationsResponse
	pushed   []*arbev1.AddPushDeviceRequest
	// inbox is the reader's inbox.
	inbox *arbev1.Inbox
	// tree has the files of all sandboxes by their paths, and treeDiff the patch of their changes. Without a tree, no sandbox is
	// running.
	tree     map[string]string
	treeDiff *arbev1.GetSandboxChangesResponse
	// uncommitted reports that the last question was for what is not committed. ran are the arguments of commands, as JSON.
	uncommitted bool
	ran         []string
}

func newFake() *fake {
	f := &fake{
		secrets: map[string]string{},
		changed: make(chan struct{}),
		house:   &arbev1.House{Id: "home", Name: "Home", DefaultEnvironmentId: "env1", Role: "owner"},
		me:      &arbev1.Agent{Id: "7f6f0a52-0000-4000-8000-000000000001", Kind: "human", Name: "Ada"},
		threads: map[string]*arbev1.Thread{}, logs: map[string][]*arbev1.Entry{},
		deltas: map[string][]*arbev1.Delta{}, bytes: map[string]string{}, boxes: map[string]*arbev1.Sandbox{},
		called: map[string]int{}, once: map[string]bool{}, broken: map[string]error{}, inbox: &arbev1.Inbox{},
	}
	f.agents = []*arbev1.Agent{f.me}
	f.recipes = []*arbev1.Environment{{Id: "env1", HouseId: f.house.Id, Name: "default"}}
	return f
}

// start serves the web app over the fake, and returns its address.
func (f *fake) start(t testing.TB) string {
	t.Helper()
	server := httptest.NewUnstartedServer(f.app(t))
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

func (f *fake) app(t testing.TB) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	as := connect.WithInterceptors(needsSession{f})
	for _, s := range []func() (string, http.Handler){
		func() (string, http.Handler) { return arbev1connect.NewHouseServiceHandler(houses{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewAgentServiceHandler(agents{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewThreadServiceHandler(threads{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewEntryServiceHandler(entries{f: f}, as) },
		func() (string, http.Handler) {
			return arbev1connect.NewEnvironmentServiceHandler(environments{f: f}, as)
		},
		func() (string, http.Handler) { return arbev1connect.NewSandboxServiceHandler(sandboxes{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewArtifactServiceHandler(artifacts{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewSecretServiceHandler(secrets{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewApprovalServiceHandler(approvals{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewModelServiceHandler(models{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewRunServiceHandler(runs{f: f}, as) },
		func() (string, http.Handler) { return arbev1connect.NewInboxServiceHandler(inboxes{f: f}, as) },
		func() (string, http.Handler) {
			return arbev1connect.NewNotificationServiceHandler(notifications{f: f}, as)
		},
	} {
		mux.Handle(s())
	}
	mux.HandleFunc("GET /api/artifact/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := (needsSession{f}).check("", r.Header); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(f.bytes[r.PathValue("id")]))
	})
	services := httptest.NewServer(mux)
	t.Cleanup(func() { services.CloseClientConnections(); services.Close() })
	return web.New(web.Config{HTTPClient: services.Client(), BaseURL: services.URL, Secure: f.secure, Log: f.logger})
}

// restartable serves h at an address that survives kill.
type restartable struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
}

func (s *restartable) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.server = &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}
	go func(server *http.Server) { _ = server.Serve(listener) }(s.server)
}

func (s *restartable) kill() { _ = s.server.Close() }

// thread adds a thread with a name.
func (f *fake) thread(id, name string) *arbev1.Thread {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &arbev1.Thread{
		Id: id, HouseId: f.house.Id, StreamId: "arbe-thread-" + id, Name: name, Status: arbev1.ThreadStatus_THREAD_STATUS_OPEN,
		CreatedAt: timestamppb.New(f.time()), LastActivityAt: timestamppb.New(f.time()),
	}
	f.threads[id] = t
	f.wake()
	return t
}

// fork adds a fork of a thread at an entry.
func (f *fake) fork(id string, source *arbev1.Thread, at int64) *arbev1.Thread {
	t := f.thread(id, "Fork of "+source.Name)
	f.mu.Lock()
	f.logs[id] = slices.Clone(f.logs[source.Id][:at])
	t.ForkedFrom = &arbev1.Origin{ThreadId: source.Id, Seq: at}
	f.mu.Unlock()
	f.says(id, f.me.Id, "", entry.Forked{ThreadID: source.Id, Seq: at})
	return t
}

// says appends an entry by author.
func (f *fake) says(thread, author, id string, p entry.Payload) *arbev1.Entry {
	return f.append(thread, author, id, p.Type(), string(entry.NewDraft(id, author, p).Payload))
}

func (f *fake) append(thread, author, id, kind, payload string) *arbev1.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.logs[thread] {
		if e.Id == id {
			return e
		}
	}
	seq := int64(len(f.logs[thread]) + 1)
	if id == "" {
		id = fmt.Sprintf("%s-%d", thread, seq)
	}
	e := &arbev1.Entry{Seq: seq, Id: id, AuthorAgentId: author, Type: kind, Payload: payload, Ts: timestamppb.New(f.time())}
	f.logs[thread] = append(f.logs[thread], e)
	f.threads[thread].Tail = seq
	if id == entry.ResultID(f.threads[thread].Running.GetCommandId()) {
		f.threads[thread].Running = nil
	}
	f.threads[thread].LastActivityAt = e.Ts
	f.wake()
	return e
}

// prints streams output of a running command.
func (f *fake) prints(thread, commandID string, offset int64, text string) {
	f.delta(thread, entry.ResultID(commandID), offset, text)
}

// delta streams a piece of a future entry.
func (f *fake) delta(thread, entryID string, offset int64, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deltas[thread] = append(f.deltas[thread], &arbev1.Delta{EntryId: entryID, Offset: offset, Data: []byte(text)})
	f.wake()
}

func (f *fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// time returns the time of the next change: now, unless a test has set another.
func (f *fake) time() time.Time {
	if f.now.IsZero() {
		return time.Now()
	}
	return f.now
}

// refusal returns why nothing can be said or run in a thread, or nil if the thread accepts both.
func (f *fake) refusal(thread string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.threads[thread]; f.fail == nil && t != nil && t.Status == arbev1.ThreadStatus_THREAD_STATUS_CLOSED {
		return refused(connect.CodeFailedPrecondition, "this thread is closed", "reopen it to write or run something in it")
	}
	return f.fail
}

// fails makes all unary calls of a method fail with err. A nil err ends that.
func (f *fake) fails(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken[method] = err
}

func (f *fake) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// copied returns a copy of m, because the fake's own messages change later.
func copied[M proto.Message](m M) M { return proto.Clone(m).(M) }

func refused(code connect.Code, message, next string) error {
	err := connect.NewError(code, errors.New(message))
	err.Meta().Set(arbev1.NextHeader, next)
	return err
}

type needsSession struct{ f *fake }

func (needsSession) check(procedure string, h http.Header) error {
	if h.Get("Cookie") == "__Host-arbe_session=good" || strings.HasSuffix(procedure, "/GetLoginLink") || strings.HasSuffix(procedure, "/RedeemLoginLink") {
		return nil
	}
	return refused(connect.CodeUnauthenticated, "the session has ended", "log in again")
}

func (i needsSession) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		method := path.Base(req.Spec().Procedure)
		i.f.mu.Lock()
		i.f.calls++
		i.f.called[method]++
		broken := cmp.Or(i.f.broken[method], i.f.broken[method+" "+strconv.Itoa(i.f.called[method])])
		i.f.mu.Unlock()
		if err := i.check(req.Spec().Procedure, req.Header()); err != nil {
			return nil, err
		}
		if broken != nil {
			return nil, broken
		}
		return next(ctx, req)
	}
}

func (needsSession) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i needsSession) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := i.check(conn.Spec().Procedure, conn.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

type houses struct {
	arbev1connect.UnimplementedHouseServiceHandler
	f *fake
}

func (s houses) GetHouse(_ context.Context, req *arbev1.GetHouseRequest) (*arbev1.GetHouseResponse, error) {
	if req.Id != s.f.house.Id {
		return nil, refused(connect.CodeNotFound, "there is no house "+req.Id, "list your houses")
	}
	res := &arbev1.GetHouseResponse{House: s.f.house}
	if req.Usage {
		res.Logs = &arbev1.HouseLogs{Entries: 1234, Bytes: 3 << 20, BytesLimit: 20 << 30}
	}
	if p := req.Preview; p != nil { // it finds as many old threads and artifacts as the fake is told
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		res.Preview = &arbev1.RetentionPreview{}
		if p.ThreadsDays > 0 {
			res.Preview.Threads = s.f.old
		}
		if p.ArtifactsDays > 0 {
			res.Preview.Artifacts, res.Preview.ArtifactBytes = s.f.old, 1000*s.f.old
		}
	}
	return res, nil
}

func (s houses) ListMembers(context.Context, *arbev1.ListMembersRequest) (*arbev1.ListMembersResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListMembersResponse{}
	for _, a := range s.f.agents {
		res.Members = append(res.Members, &arbev1.Member{Agent: copied(a), Role: "member"})
	}
	return res, nil
}

func (s houses) ListInvites(context.Context, *arbev1.ListInvitesRequest) (*arbev1.ListInvitesResponse, error) {
	return &arbev1.ListInvitesResponse{Invites: s.f.invites}, nil
}

func (s houses) DeleteHouse(_ context.Context, req *arbev1.DeleteHouseRequest) (*arbev1.DeleteHouseResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if req.Name != s.f.house.Name {
		return nil, refused(connect.CodeInvalidArgument, "name: this is not the name of the house", "repeat the name of the house exactly")
	}
	s.f.deleted = true
	return &arbev1.DeleteHouseResponse{}, nil
}

func (s houses) UpdateHouse(_ context.Context, req *arbev1.UpdateHouseRequest) (*arbev1.UpdateHouseResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if req.Etag != "" && req.Etag != s.f.house.Etag {
		return nil, refused(connect.CodeAborted, "somebody has changed this house", "read it again")
	}
	s.f.house = copied(s.f.house)
	s.f.house.Etag += "+"
	s.f.house.Limits = cmp.Or(req.Limits, s.f.house.Limits)
	s.f.house.Retention = cmp.Or(req.Retention, s.f.house.Retention)
	if req.Name != nil {
		s.f.house.Name, s.f.house.DefaultEnvironmentId = req.GetName(), req.GetDefaultEnvironmentId()
	}
	return &arbev1.UpdateHouseResponse{House: s.f.house}, nil
}

func (s houses) ListHouses(context.Context, *arbev1.ListHousesRequest) (*arbev1.ListHousesResponse, error) {
	return &arbev1.ListHousesResponse{Houses: []*arbev1.House{s.f.house}}, nil
}

// WatchHouse sends the requested rows whenever they have changed.
func (s houses) WatchHouse(ctx context.Context, req *arbev1.WatchHouseRequest, stream *connect.ServerStream[arbev1.WatchHouseResponse]) error {
	if req.HouseId != s.f.house.Id {
		return refused(connect.CodeNotFound, "there is no house "+req.HouseId, "list your houses")
	}
	had, caughtUp := map[string]proto.Message{}, false
	for {
		s.f.mu.Lock()
		changed := s.f.changed
		s.f.mu.Unlock()
		now := map[string]*arbev1.WatchHouseResponse{"house": {Event: &arbev1.WatchHouseResponse_House{House: copied(s.f.house)}}}
		row := func(t *arbev1.Thread) {
			now["thread "+t.Id] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Thread{Thread: t}}
		}
		if req.Threads > 0 {
			list, err := threads{f: s.f}.ListThreads(ctx, &arbev1.ListThreadsRequest{PageSize: req.Threads})
			if err != nil {
				return err
			}
			for _, t := range list.Threads {
				row(t)
			}
			now["rest "] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Rest{Rest: &arbev1.Rest{PageToken: list.NextPageToken}}}
		}
		for _, id := range req.ThreadIds {
			s.f.focus(id, row, now)
		}
		if req.Inbox {
			got, _ := inboxes{f: s.f}.GetInbox(ctx, nil)
			now["inbox "] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Inbox{Inbox: got.Inbox}}
		}
		if req.Members {
			s.f.mu.Lock()
			for _, a := range s.f.agents {
				now["member "+a.Id] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Member{Member: &arbev1.Member{Agent: copied(a), Role: "member"}}}
			}
			s.f.mu.Unlock()
		}
		for key, e := range now {
			if !proto.Equal(had[key], e) {
				if err := stream.Send(e); err != nil {
					return err
				}
			}
		}
		for key := range had {
			if kind, id, _ := strings.Cut(key, " "); now[key] == nil {
				if err := stream.Send(&arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Gone{Gone: &arbev1.Gone{Kind: kind, Id: id}}}); err != nil {
					return err
				}
			}
		}
		clear(had)
		for key, e := range now {
			had[key] = e
		}
		if !caughtUp {
			caughtUp = true
			if err := stream.Send(&arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_CaughtUp{CaughtUp: &arbev1.Watching{}}}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// focus adds a thread and the rows that belong to it.
func (f *fake) focus(id string, row func(*arbev1.Thread), now map[string]*arbev1.WatchHouseResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.threads[id]
	if t == nil {
		return
	}
	for _, other := range f.threads {
		if other == t || other.Id == t.ParentThreadId || other.Id == t.ForkedFrom.GetThreadId() || other.ForkedFrom.GetThreadId() == id || other.ParentThreadId == id {
			row(copied(other))
		}
	}
	if box := f.boxes[t.SandboxId]; box != nil {
		now["sandbox "+box.Id] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Sandbox{Sandbox: copied(box)}}
	}
	environment := &arbev1.Environment{Id: f.house.DefaultEnvironmentId, HouseId: f.house.Id, Name: "default", Config: &arbev1.EnvironmentConfig{Driver: "local"}}
	now["environment "+environment.Id] = &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Environment{Environment: environment}}
}

type agents struct {
	arbev1connect.UnimplementedAgentServiceHandler
	f *fake
}

func (s agents) WhoAmI(ctx context.Context, req *arbev1.WhoAmIRequest) (*arbev1.WhoAmIResponse, error) {
	s.f.mu.Lock()
	res := &arbev1.WhoAmIResponse{Agent: s.f.me, Credential: "session", Unnamed: s.f.unnamed}
	s.f.mu.Unlock()
	if req.Sessions {
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		call, _ := connect.CallInfoForHandlerContext(ctx)
		own := &arbev1.Session{Id: "own", Client: call.RequestHeader().Get("User-Agent"), Current: true}
		res.Sessions = append([]*arbev1.Session{own}, s.f.sessions...)
	}
	return res, nil
}

func (s agents) UpdateProfile(_ context.Context, req *arbev1.UpdateProfileRequest) (*arbev1.UpdateProfileResponse, error) {
	if strings.ContainsRune(req.Name, '\t') {
		return nil, refused(connect.CodeInvalidArgument, "name: it has a tab", "use spaces")
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.me = copied(s.f.me)
	s.f.me.Name, s.f.unnamed = req.Name, false
	return &arbev1.UpdateProfileResponse{Agent: s.f.me}, nil
}

func (s agents) ListAgents(context.Context, *arbev1.ListAgentsRequest) (*arbev1.ListAgentsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListAgentsResponse{}
	for _, a := range s.f.agents {
		res.Agents = append(res.Agents, copied(a))
	}
	return res, nil
}

// GetAgent treats an author that is not an id as the service does.
func (s agents) GetAgent(_ context.Context, req *arbev1.GetAgentRequest) (*arbev1.GetAgentResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, a := range s.f.agents {
		if a.Id == req.Id {
			return &arbev1.GetAgentResponse{Agent: copied(a)}, nil
		}
	}
	if len(req.Id) != len(s.f.me.Id) {
		return nil, refused(connect.CodeInvalidArgument, "id: value must be a valid UUID", "give the id of an agent")
	}
	return nil, refused(connect.CodeNotFound, "there is no agent "+req.Id, "list the agents of the house")
}

// Two links are valid: "fresh" is Ada's, and "other" is somebody else's.
func (s agents) GetLoginLink(_ context.Context, req *arbev1.GetLoginLinkRequest) (*arbev1.GetLoginLinkResponse, error) {
	switch req.Token {
	case "fresh":
		return &arbev1.GetLoginLinkResponse{Agent: s.f.me}, nil
	case "other":
		return &arbev1.GetLoginLinkResponse{Agent: &arbev1.Agent{Id: "7f6f0a52-0000-4000-8000-00000000000b", Kind: "human", Name: "Mallory"}}, nil
	}
	return nil, refused(connect.CodeUnauthenticated, "this login link was used already", "make a new one with arbe login")
}

func (s agents) RedeemLoginLink(_ context.Context, req *arbev1.RedeemLoginLinkRequest) (*arbev1.RedeemLoginLinkResponse, error) {
	if req.Token != "fresh" && req.Token != "other" {
		return nil, refused(connect.CodeUnauthenticated, "this login link was used already", "make a new one with arbe login")
	}
	s.f.mu.Lock()
	s.f.redeemed++
	s.f.mu.Unlock()
	return &arbev1.RedeemLoginLinkResponse{Session: "good", ExpiresAt: timestamppb.New(time.Now().Add(time.Hour))}, nil
}

// One login waits, with the code BCDF-GHJK.
func (agents) GetDeviceLogin(_ context.Context, req *arbev1.GetDeviceLoginRequest) (*arbev1.GetDeviceLoginResponse, error) {
	if req.UserCode != "BCDF-GHJK" {
		return nil, refused(connect.CodeNotFound, "no login waits with this code", "compare it with the code in your terminal")
	}
	return &arbev1.GetDeviceLoginResponse{Login: &arbev1.DeviceLogin{
		UserCode: req.UserCode, Client: "arbe on <b>build</b>", Address: "192.0.2.7", CreatedAt: timestamppb.Now(),
	}}, nil
}

func (s agents) AnswerDeviceLogin(_ context.Context, req *arbev1.AnswerDeviceLoginRequest) (*arbev1.AnswerDeviceLoginResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.deviceAnswers = append(s.f.deviceAnswers, req.UserCode+" "+req.Verdict.String())
	return &arbev1.AnswerDeviceLoginResponse{Login: &arbev1.DeviceLogin{UserCode: req.UserCode}}, nil
}

func (s agents) EndSession(ctx context.Context, req *arbev1.EndSessionRequest) (*arbev1.EndSessionResponse, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if req.Which != nil {
		s.f.sessions = slices.DeleteFunc(s.f.sessions, func(x *arbev1.Session) bool { return req.GetOthers() || x.Id == req.GetId() })
		return &arbev1.EndSessionResponse{}, nil
	}
	s.f.ended = append(s.f.ended, info.RequestHeader().Get("Cookie"))
	return &arbev1.EndSessionResponse{}, nil
}

type threads struct {
	arbev1connect.UnimplementedThreadServiceHandler
	f *fake
}

func (s threads) StopTurn(_ context.Context, req *arbev1.StopTurnRequest) (*arbev1.StopTurnResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.stoppedTurns = append(s.f.stoppedTurns, req.TurnId)
	s.f.wake()
	return &arbev1.StopTurnResponse{TurnIds: []string{req.TurnId}}, nil
}

func (s threads) RetryTurn(_ context.Context, req *arbev1.RetryTurnRequest) (*arbev1.RetryTurnResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.retriedTurns = append(s.f.retriedTurns, req.TurnId)
	s.f.wake()
	return &arbev1.RetryTurnResponse{TurnId: "another"}, nil
}

type inboxes struct {
	arbev1connect.UnimplementedInboxServiceHandler
	f *fake
}

func (s inboxes) GetInbox(context.Context, *arbev1.GetInboxRequest) (*arbev1.GetInboxResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return &arbev1.GetInboxResponse{Inbox: copied(s.f.inbox)}, nil
}

// MarkRead removes a thread that was read from the inbox, as the server does.
func (s inboxes) MarkRead(_ context.Context, req *arbev1.MarkReadRequest) (*arbev1.MarkReadResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.inbox.Needs = slices.DeleteFunc(s.f.inbox.Needs, func(n *arbev1.Need) bool { return n.ThreadId == req.ThreadId })
	s.f.inbox.Readings = slices.DeleteFunc(s.f.inbox.Readings, func(r *arbev1.Reading) bool { return r.ThreadId == req.ThreadId && !r.Muted })
	s.f.inbox.Total = int32(len(s.f.inbox.Needs))
	if req.Unread {
		s.f.inbox.Readings = append(s.f.inbox.Readings, &arbev1.Reading{ThreadId: req.ThreadId, Seq: req.Seq - 1, Unread: 1})
	}
	s.f.wake()
	return &arbev1.MarkReadResponse{Reading: &arbev1.Reading{ThreadId: req.ThreadId, Seq: req.Seq}}, nil
}

func (s inboxes) MuteThread(_ context.Context, req *arbev1.MuteThreadRequest) (*arbev1.MuteThreadResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	now := &arbev1.Reading{ThreadId: req.ThreadId, Muted: req.Muted}
	s.f.inbox.Readings = append(slices.DeleteFunc(s.f.inbox.Readings, func(r *arbev1.Reading) bool { return r.ThreadId == req.ThreadId }), now)
	s.f.wake()
	return &arbev1.MuteThreadResponse{Reading: now}, nil
}

type notifications struct {
	arbev1connect.UnimplementedNotificationServiceHandler
	f *fake
}

func (s notifications) GetNotifications(context.Context, *arbev1.GetNotificationsRequest) (*arbev1.GetNotificationsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return copied(&s.f.notified), nil
}

func (s notifications) UpdateNotifications(_ context.Context, req *arbev1.UpdateNotificationsRequest) (*arbev1.UpdateNotificationsResponse, error) {
	if q := req.Settings.QuietHours; q != nil && q.TimeZone == "Nowhere" {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("there is no time zone %q", q.TimeZone))
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.notified.Settings = req.Settings
	return &arbev1.UpdateNotificationsResponse{Settings: req.Settings}, nil
}

func (s notifications) AddPushDevice(_ context.Context, req *arbev1.AddPushDeviceRequest) (*arbev1.AddPushDeviceResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.pushed = append(s.f.pushed, req)
	s.f.notified.Devices = append(s.f.notified.Devices, &arbev1.PushDevice{Id: "pushed", Client: "Chrome", CreatedAt: timestamppb.Now()})
	return &arbev1.AddPushDeviceResponse{Id: "pushed"}, nil
}

func (s notifications) RemovePushDevice(_ context.Context, req *arbev1.RemovePushDeviceRequest) (*arbev1.RemovePushDeviceResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.notified.Devices = slices.DeleteFunc(s.f.notified.Devices, func(d *arbev1.PushDevice) bool { return d.Id == req.Id })
	return &arbev1.RemovePushDeviceResponse{}, nil
}

type approvals struct {
	arbev1connect.UnimplementedApprovalServiceHandler
	f *fake
}

func (s approvals) AnswerApproval(_ context.Context, req *arbev1.AnswerApprovalRequest) (*arbev1.AnswerApprovalResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if slices.ContainsFunc(s.f.answered, func(a string) bool { return strings.HasPrefix(a, req.Id+" ") }) {
		return nil, refused(connect.CodeFailedPrecondition, "this was already answered: Ada said yes at 10:00:00 on 2026-01-02 (UTC)", "see the thread's entries for what came of it")
	}
	s.f.answered = append(s.f.answered, fmt.Sprint(req.Id, " ", req.Verdict, " ", req.Reason))
	s.f.wake()
	return &arbev1.AnswerApprovalResponse{}, nil
}

type secrets struct {
	arbev1connect.UnimplementedSecretServiceHandler
	f *fake
}

func (s secrets) ListSecrets(context.Context, *arbev1.ListSecretsRequest) (*arbev1.ListSecretsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListSecretsResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.f.secrets)) {
		res.Secrets = append(res.Secrets, &arbev1.Secret{Name: name})
	}
	return res, nil
}

// SetSecret refuses an empty value, as the service does.
func (s secrets) SetSecret(_ context.Context, req *arbev1.SetSecretRequest) (*arbev1.SetSecretResponse, error) {
	if len(req.Value) == 0 {
		return nil, refused(connect.CodeInvalidArgument, "value: it is empty", "paste the secret")
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.secrets[req.HouseId+" "+req.Name] = string(req.Value)
	return &arbev1.SetSecretResponse{}, nil
}

func (s threads) get(id string) (*arbev1.Thread, error) {
	if t, ok := s.f.threads[id]; ok {
		return t, nil
	}
	return nil, refused(connect.CodeNotFound, "there is no thread "+id, "list the threads of the house")
}

func (s threads) CreateThread(_ context.Context, req *arbev1.CreateThreadRequest) (*arbev1.CreateThreadResponse, error) {
	s.f.mu.Lock()
	known, ok := s.f.threads[req.Id]
	s.f.mu.Unlock()
	if !ok {
		known = s.f.thread(req.Id, req.Name)
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return &arbev1.CreateThreadResponse{Thread: copied(known)}, nil
}

func (s threads) GetThread(_ context.Context, req *arbev1.GetThreadRequest) (*arbev1.GetThreadResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	t, err := s.get(req.Id)
	if err != nil {
		return nil, err
	}
	return &arbev1.GetThreadResponse{Thread: copied(t), Used: s.f.used}, nil
}

func (s threads) ListThreads(_ context.Context, req *arbev1.ListThreadsRequest) (*arbev1.ListThreadsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListThreadsResponse{}
	for _, pinned := range []bool{true, false} {
		var group []*arbev1.Thread
		for _, t := range s.f.threads {
			if (t.PinnedAt != nil) == pinned && (req.Status == 0 || t.Status == req.Status) && (req.ForkedFromThreadId == "" || t.ForkedFrom.GetThreadId() == req.ForkedFromThreadId) && (req.ParentThreadId == "" || t.ParentThreadId == req.ParentThreadId) {
				group = append(group, t)
			}
		}
		for len(group) > 0 { // by last activity; a simple loop is fast enough for a few threads
			latest := 0
			for i, t := range group {
				a, b := t.LastActivityAt.AsTime(), group[latest].LastActivityAt.AsTime()
				if a.After(b) || a.Equal(b) && t.Id > group[latest].Id {
					latest = i
				}
			}
			res.Threads = append(res.Threads, copied(group[latest]))
			group = append(group[:latest], group[latest+1:]...)
		}
	}
	if from, err := strconv.Atoi(req.PageToken); err == nil {
		res.Threads = res.Threads[min(from, len(res.Threads)):]
	}
	if int(req.PageSize) < len(res.Threads) {
		res.Threads, res.NextPageToken = res.Threads[:req.PageSize], strconv.Itoa(int(req.PageSize))
	}
	return res, nil
}

func (s threads) UpdateThread(_ context.Context, req *arbev1.UpdateThreadRequest) (*arbev1.UpdateThreadResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	t, err := s.get(req.Id)
	if err != nil {
		return nil, err
	}
	if req.Etag != "" && req.Etag != t.Etag {
		return nil, refused(connect.CodeAborted, "somebody else changed this thread", "read it again")
	}
	t.Etag += "+"
	if req.Name != nil {
		t.Name = *req.Name
	}
	if req.Status != nil {
		t.Status = *req.Status
	}
	if req.Tags != nil {
		t.Tags = req.Tags.Values
	}
	if req.Model != nil {
		if !strings.Contains(*req.Model, "/") && *req.Model != "" {
			return nil, refused(connect.CodeInvalidArgument, "model: it does not say which provider it is from", "write provider/model")
		}
		t.Model, t.Think = req.GetModel(), req.GetThink()
	}
	if req.AnsweringAgentId != nil {
		t.AnsweringAgentId, t.AnsweringSettled = *req.AnsweringAgentId, true
	}
	if req.Pinned != nil {
		t.PinnedAt = nil
		if *req.Pinned {
			t.PinnedAt = timestamppb.Now()
		}
	}
	s.f.wake()
	return &arbev1.UpdateThreadResponse{Thread: copied(t)}, nil
}

func (s threads) DeleteThread(_ context.Context, req *arbev1.DeleteThreadRequest) (*arbev1.DeleteThreadResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	delete(s.f.threads, req.Id)
	delete(s.f.logs, req.Id)
	s.f.wake()
	return &arbev1.DeleteThreadResponse{}, nil
}

func (s threads) ForkThread(_ context.Context, req *arbev1.ForkThreadRequest) (*arbev1.ForkThreadResponse, error) {
	s.f.mu.Lock()
	source, err := s.get(req.ThreadId)
	made, again := s.f.threads[req.Id]
	s.f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !again {
		made = s.f.fork(req.Id, source, req.At)
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return &arbev1.ForkThreadResponse{Thread: copied(made)}, nil
}

func (s threads) RunCommand(_ context.Context, req *arbev1.RunCommandRequest) (*arbev1.RunCommandResponse, error) {
	if err := s.f.refusal(req.ThreadId); err != nil {
		return nil, err
	}
	if args := req.GetArgv().GetArgs(); args != nil {
		text, _ := json.Marshal(args)
		s.f.ran = append(s.f.ran, string(text))
	}
	e := s.f.says(req.ThreadId, s.f.me.Id, req.Id, entry.Command{Command: req.GetCommand(), Argv: req.GetArgv().GetArgs(), Directory: req.GetDirectory(), Env: req.GetEnv()})
	s.f.asked(req.ThreadId, e)
	return &arbev1.RunCommandResponse{Entry: e, ResultId: entry.ResultID(req.Id)}, nil
}

func (s threads) CancelCommand(_ context.Context, req *arbev1.CancelCommandRequest) (*arbev1.CancelCommandResponse, error) {
	s.f.says(req.ThreadId, "", entry.ResultID(req.CommandId), entry.CommandResult{CommandID: req.CommandId, SandboxID: "box1", ExitCode: 130, Cancelled: true, CancelledBy: s.f.me.Id, Signal: "SIGINT", DurationMS: 1500})
	return &arbev1.CancelCommandResponse{}, nil
}

type entries struct {
	arbev1connect.UnimplementedEntryServiceHandler
	f *fake
}

func (s entries) Say(_ context.Context, req *arbev1.SayRequest) (*arbev1.SayResponse, error) {
	if err := s.f.refusal(req.ThreadId); err != nil {
		return nil, err
	}
	if err := entry.CheckComposed(req.Text); err != nil {
		f := fault.From(err)
		return nil, refused(connect.CodeInvalidArgument, f.Message, f.Next)
	}
	chat := entry.Chat{Text: req.Text, ReplyTo: req.ReplyTo, Queue: req.Queue}
	for _, id := range req.AttachmentIds {
		chat.Attachments = append(chat.Attachments, entry.Attachment{ArtifactID: id, Name: "file " + id, MediaType: "text/plain", Size: 3})
	}
	var said entry.Payload = chat
	if line, ok := entry.ParseCommand(req.Text); ok {
		said = entry.Command{Command: line}
	}
	if err := said.Validate(); err != nil {
		f := fault.From(err)
		code := connect.CodeInvalidArgument
		if f.Code == fault.Exhausted {
			code = connect.CodeResourceExhausted
		}
		return nil, refused(code, f.Message, f.Next)
	}
	e := s.f.says(req.ThreadId, s.f.me.Id, req.Id, said)
	s.f.asked(req.ThreadId, e)
	return &arbev1.SayResponse{Entry: e}, nil
}

// asked updates the thread's row after somebody said something.
func (f *fake) asked(thread string, e *arbev1.Entry) {
	f.update(thread, func(t *arbev1.Thread) {
		p, _ := entry.Decode(entry.Entry{Type: e.Type, Payload: []byte(e.Payload)})
		t.LastSaid = &arbev1.LastSaid{AuthorAgentId: e.AuthorAgentId, AuthorName: f.me.Name, Text: p.Plain()}
		if e.Type == (entry.Command{}).Type() {
			t.Running = &arbev1.Running{CommandId: e.Id, Since: e.Ts}
		}
	})
}

// WhoAnswers returns a bot that is mentioned by its handle, that the thread is a direct message to, or that answers in the thread.
func (s entries) WhoAnswers(_ context.Context, req *arbev1.WhoAnswersRequest) (*arbev1.WhoAnswersResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	t := s.f.threads[req.ThreadId]
	if t == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such thread"))
	}
	res := &arbev1.WhoAnswersResponse{}
	for _, a := range s.f.agents {
		mentioned := a.Handle != "" && strings.Contains(req.Text, "@"+a.Handle)
		if a.Kind == "bot" && (mentioned || a.Id == t.ParentAgentId || a.Id == t.AnsweringAgentId) {
			res.Answerers = append(res.Answerers, &arbev1.Answerer{AgentId: a.Id, Handle: a.Handle, Name: a.Name, Action: "fire", Reason: "mention"})
		}
	}
	return res, nil
}

func (s entries) ShowTyping(_ context.Context, req *arbev1.ShowTypingRequest) (*arbev1.ShowTypingResponse, error) {
	s.f.types(req.ThreadId, s.f.me.Id)
	return &arbev1.ShowTypingResponse{}, nil
}

// types lets an agent write something.
func (f *fake) types(thread, agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.typed = append(f.typed, thread+" "+agent)
	f.wake()
}

func (s entries) Append(_ context.Context, req *arbev1.AppendRequest) (*arbev1.AppendResponse, error) {
	if err := s.f.refusal(req.ThreadId); err != nil {
		return nil, err
	}
	return &arbev1.AppendResponse{Entry: s.f.append(req.ThreadId, s.f.me.Id, req.Id, req.Type, req.Payload)}, nil
}

func (s entries) List(_ context.Context, req *arbev1.ListRequest) (*arbev1.ListResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if _, err := (threads{f: s.f}).get(req.ThreadId); err != nil {
		return nil, err
	}
	log := s.f.logs[req.ThreadId]
	res := &arbev1.ListResponse{Tail: int64(len(log))}
	if req.Merged {
		return s.merged(log, req), nil
	}
	from, to := min(req.After, res.Tail), res.Tail
	if req.Before > 0 {
		to = max(min(req.Before-1, to), from)
	}
	limit := int64(req.Limit)
	if req.Last || req.Before > 0 {
		from = max(from, to-limit)
	} else {
		to = min(to, from+limit)
	}
	if res.Entries = log[from:to]; len(req.Types) > 0 {
		res.Searched = to
		res.Entries = slices.DeleteFunc(slices.Clone(res.Entries), func(e *arbev1.Entry) bool { return !slices.Contains(req.Types, e.Type) })
	}
	return res, nil
}

// merged lists the entries that have rows.
func (s entries) merged(log []*arbev1.Entry, req *arbev1.ListRequest) *arbev1.ListResponse {
	res := &arbev1.ListResponse{Tail: int64(len(log))}
	from, to := min(req.After, res.Tail), res.Tail
	if req.Before > 0 {
		to = max(min(req.Before-1, to), from)
	}
	last := req.Last || req.Before > 0
	if res.Searched = to; last {
		res.Searched = from + 1
	}
	part := slices.Clone(log[from:to])
	if last {
		slices.Reverse(part)
	}
	for _, e := range part {
		if strings.HasPrefix(e.Type, entry.Quiet) {
			continue
		}
		if res.Entries = append(res.Entries, e); len(res.Entries) == int(req.Limit) {
			res.Searched = e.Seq
			break
		}
	}
	if last {
		slices.Reverse(res.Entries)
	}
	return res
}

func (s entries) Tail(ctx context.Context, req *arbev1.TailRequest, stream *connect.ServerStream[arbev1.TailResponse]) error {
	s.f.count(+1)
	defer s.f.count(-1)
	position, printed, caughtUp := req.After, 0, false
	s.f.mu.Lock()
	typed := len(s.f.typed)
	s.f.mu.Unlock()
	for {
		s.f.mu.Lock()
		_, exists := s.f.threads[req.ThreadId]
		log, deltas, typists, changed := s.f.logs[req.ThreadId], s.f.deltas[req.ThreadId], s.f.typed, s.f.changed
		s.f.mu.Unlock()
		if !exists {
			return refused(connect.CodeNotFound, "the thread is gone", "list the threads of the house")
		}
		for ; typed < len(typists); typed++ { // before the entries, which end it
			if agent, here := strings.CutPrefix(typists[typed], req.ThreadId+" "); here {
				if err := stream.Send(&arbev1.TailResponse{Event: &arbev1.TailResponse_Typing{Typing: &arbev1.Typing{AgentId: agent}}}); err != nil {
					return err
				}
			}
		}
		for _, e := range log[min(position, int64(len(log))):] {
			if err := stream.Send(&arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: e}}); err != nil {
				return err
			}
			position = e.Seq
		}
		if !caughtUp {
			caughtUp = true
			if err := stream.Send(&arbev1.TailResponse{Event: &arbev1.TailResponse_CaughtUp{CaughtUp: &arbev1.CaughtUp{Seq: position}}}); err != nil {
				return err
			}
		}
		for _, d := range deltas[printed:] {
			if err := stream.Send(&arbev1.TailResponse{Event: &arbev1.TailResponse_Delta{Delta: d}}); err != nil {
				return err
			}
			printed++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

type environments struct {
	arbev1connect.UnimplementedEnvironmentServiceHandler
	f *fake
}

func (s environments) AllowHosts(_ context.Context, req *arbev1.AllowHostsRequest) (*arbev1.AllowHostsResponse, error) {
	s.f.mu.Lock()
	s.f.allowed = append(s.f.allowed, fmt.Sprint(req.GetId(), " ", req.GetHosts(), " ", req.GetThreadId()))
	s.f.mu.Unlock()
	for _, host := range req.GetHosts() {
		s.f.says(req.GetThreadId(), s.f.me.Id, "", entry.HostAllowed{EnvironmentID: req.GetId(), Host: host})
	}
	return &arbev1.AllowHostsResponse{}, nil
}

func (s environments) GetEnvironment(_ context.Context, req *arbev1.GetEnvironmentRequest) (*arbev1.GetEnvironmentResponse, error) {
	return &arbev1.GetEnvironmentResponse{Environment: &arbev1.Environment{Id: req.Id, HouseId: s.f.house.Id, Name: "default", Config: &arbev1.EnvironmentConfig{Driver: "local"}}}, nil
}

func (s environments) ListEnvironments(context.Context, *arbev1.ListEnvironmentsRequest) (*arbev1.ListEnvironmentsResponse, error) {
	return &arbev1.ListEnvironmentsResponse{Environments: s.f.recipes, DefaultDriver: "standard"}, nil
}

type models struct {
	arbev1connect.UnimplementedModelServiceHandler
	f *fake
}

func (s models) ListModels(context.Context, *arbev1.ListModelsRequest) (*arbev1.ListModelsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.models == nil {
		return nil, refused(connect.CodeUnavailable, "the models cannot be listed", "try again")
	}
	return s.f.models, nil
}

type sandboxes struct {
	arbev1connect.UnimplementedSandboxServiceHandler
	f *fake
}

func (s sandboxes) ListSandboxAccounts(context.Context, *arbev1.ListSandboxAccountsRequest) (*arbev1.ListSandboxAccountsResponse, error) {
	return &arbev1.ListSandboxAccountsResponse{}, nil
}

// ListSandboxes returns all sandboxes. They are all that the house had this month.
func (s sandboxes) ListSandboxes(context.Context, *arbev1.ListSandboxesRequest) (*arbev1.ListSandboxesResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	list, sum := &arbev1.ListSandboxesResponse{}, &arbev1.SandboxRunning{}
	for _, id := range slices.Sorted(maps.Keys(s.f.boxes)) {
		list.Sandboxes = append(list.Sandboxes, copied(s.f.boxes[id]))
		ran := s.f.boxes[id].GetUse().GetRunning()
		sum.TimeMs, sum.UnpricedMs, sum.CostMicros = sum.TimeMs+ran.GetTimeMs(), sum.UnpricedMs+ran.GetUnpricedMs(), sum.CostMicros+ran.GetCostMicros()
	}
	list.Spending = &arbev1.SandboxSpending{Since: timestamppb.New(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)), Running: sum}
	return list, nil
}

func (s sandboxes) GetSandbox(_ context.Context, req *arbev1.GetSandboxRequest) (*arbev1.GetSandboxResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if b, ok := s.f.boxes[req.Id]; ok {
		return &arbev1.GetSandboxResponse{Sandbox: b}, nil
	}
	return nil, refused(connect.CodeNotFound, "there is no sandbox "+req.Id, "run a command")
}

func (s sandboxes) GetSandboxLog(context.Context, *arbev1.GetSandboxLogRequest) (*arbev1.GetSandboxLogResponse, error) {
	return &arbev1.GetSandboxLogResponse{}, nil
}

// log returns a copy of a thread's log.
func (f *fake) log(thread string) []*arbev1.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.logs[thread])
}

// row returns a copy of a thread.
func (f *fake) row(thread string) *arbev1.Thread {
	f.mu.Lock()
	defer f.mu.Unlock()
	return copied(f.threads[thread])
}

// last returns the last entry of a thread.
func (f *fake) last(thread string) *arbev1.Entry {
	log := f.log(thread)
	return log[len(log)-1]
}

func (f *fake) count(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tails += by
	f.wake()
}

// patience limits the wait for something that must happen. It is long, because all tests share one browser, which may have
// sixty tabs on a machine with two cores.
const patience = 5 * time.Minute

// until waits until is returns true. is runs with the fake's lock held.
func (f *fake) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		f.mu.Lock()
		done, changed := is(), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// delete deletes a thread, as any member may.
func (f *fake) delete(thread string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.threads, thread)
	for _, t := range f.threads {
		if t.ForkedFrom.GetThreadId() == thread {
			t.ForkedFrom.ThreadId = ""
		}
	}
	f.wake()
}

// update changes a thread.
func (f *fake) update(thread string, change func(*arbev1.Thread)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.threads[thread])
	f.wake()
}

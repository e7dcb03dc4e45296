package dbtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sessions passes the connections of one test on to Postgres. When a client closes its connection, Postgres keeps the session for the
// next client with the same parameters, because a new session costs far more than most tests ask of it: it reads the catalogs
// again. The session is reset as by "discard all", but it keeps the statements that clients prepared, and the plans of functions: see
// [statements].
//
// A transaction that the client leaves open is rolled back. If Postgres is still executing a statement of it, the session ends.
//
// Source: PostgreSQL 15, chapter 55, "Frontend/Backend Protocol".
type sessions struct {
	upstream string

	mu   sync.Mutex
	idle map[string][]*session // by parameters
	// resetting counts the sessions that are being reset, by parameters. changed signals when it falls.
	resetting map[string]int
	changed   *sync.Cond
}

// session is a session of Postgres.
type session struct {
	server net.Conn
	in     *bufio.Reader
	// parameters are those of the client's first message. greeting is what Postgres answers to it once the client is authenticated,
	// and process its process for the session.
	parameters string
	greeting   []byte
	process    uint32
	// prepared are the statements that earlier clients prepared.
	prepared map[string]string
}

// The codes of first messages that are not a startup message.
const (
	cancelRequest     = 80877102
	tlsRequest        = 80877103
	encryptionRequest = 80877104
)

// startupMost is the largest first message, in bytes (PostgreSQL: MAX_STARTUP_PACKET_LENGTH).
const startupMost = 10000

func newSessions(upstream string) *sessions {
	s := &sessions{upstream: upstream, idle: map[string][]*session{}, resetting: map[string]int{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// take returns an idle session with the parameters of a startup message, or nil.
func (s *sessions) take(parameters string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		idle := s.idle[parameters]
		if len(idle) == 0 && s.resetting[parameters] > 0 {
			s.changed.Wait()
			continue
		}
		if len(idle) == 0 {
			return nil
		}
		last := idle[len(idle)-1]
		s.idle[parameters] = idle[:len(idle)-1]
		if last.alive() {
			return last
		}
		last.server.Close()
	}
}

// idleMost limits the idle sessions of a database. The tests of all processes share the connections of one Postgres.
const idleMost = 20

// put keeps a session that has been reset, unless there are many.
func (s *sessions) put(idle *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, list := range s.idle {
		n += len(list)
	}
	if n >= idleMost {
		idle.server.Close()
		return
	}
	s.idle[idle.parameters] = append(s.idle[idle.parameters], idle)
}

// reset resets a session, and keeps it if that succeeds.
func (s *sessions) reset(x *exchange) {
	s.mu.Lock()
	s.resetting[x.parameters]++
	s.mu.Unlock()
	if x.reset() {
		s.put(x.session)
	} else {
		x.server.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetting[x.parameters]--
	s.changed.Broadcast()
}

// processes returns the process ids of the idle sessions.
func (s *sessions) processes() (ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.idle {
		for _, idle := range list {
			ids = append(ids, int64(idle.process))
		}
	}
	return ids
}

// close ends the idle sessions.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.idle {
		for _, idle := range list {
			idle.server.Close()
		}
	}
	clear(s.idle)
}

// alive reports whether Postgres has sent nothing since the session was reset. Before it ends a session, it sends the reason.
func (s *session) alive() bool {
	raw, err := s.server.(*net.TCPConn).SyscallConn()
	if err != nil || s.in.Buffered() > 0 {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && quiet
}

// entrance accepts the connections of one test.
type entrance struct {
	*sessions
	listener net.Listener

	mu      sync.Mutex
	closed  bool
	clients map[net.Conn]struct{}
	servers map[net.Conn]struct{} // of sessions in use
	serving sync.WaitGroup
	// lost reports that a session ended in the middle of its work, so that Postgres may still be executing a statement.
	lost atomic.Bool
}

func enter(s *sessions) (*entrance, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &entrance{sessions: s, listener: listener, clients: map[net.Conn]struct{}{}, servers: map[net.Conn]struct{}{}}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if e.use(e.clients, client) {
				e.serving.Go(func() {
					defer client.Close()
					defer e.unuse(e.clients, client)
					e.serve(client)
				})
			}
		}
	}()
	return e, nil
}

// goodbyeTime is how long close waits for the goodbyes of clients, which may be on their way.
const goodbyeTime = 200 * time.Millisecond

// close ends the connections of all clients, and returns when no session is in use.
func (e *entrance) close() {
	e.listener.Close()
	e.mu.Lock()
	e.closed = true
	for conn := range e.clients {
		conn.SetReadDeadline(time.Now().Add(goodbyeTime)) //nolint:errcheck // then it is closed
	}
	e.mu.Unlock()
	cut := time.AfterFunc(2*goodbyeTime, func() { // those whose other end does not read
		e.mu.Lock()
		defer e.mu.Unlock()
		for conn := range e.clients {
			conn.Close()
		}
		for conn := range e.servers {
			conn.Close()
		}
	})
	e.serving.Wait()
	cut.Stop()
}

// use records a connection that close must end. It closes the connection, and reports false, if it came too late.
func (e *entrance) use(conns map[net.Conn]struct{}, conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		conn.Close()
		return false
	}
	conns[conn] = struct{}{}
	return true
}

// unuse makes close ignore a connection.
func (e *entrance) unuse(conns map[net.Conn]struct{}, conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(conns, conn)
}

// serve passes a client's connection on until it ends.
func (e *entrance) serve(client net.Conn) {
	startup, err := readStartup(client)
	if err != nil {
		return
	}
	if binary.BigEndian.Uint32(startup[4:]) == cancelRequest {
		if server, err := net.Dial("tcp", e.upstream); err == nil {
			server.Write(startup)       //nolint:errcheck // a cancellation has no answer
			io.Copy(io.Discard, server) //nolint:errcheck // until Postgres has handled it
			server.Close()
		}
		return
	}
	s := e.take(parametersOf(startup))
	if s != nil {
		if _, err := client.Write(s.greeting); err != nil {
			e.put(s)
			return
		}
	} else {
		server, err := net.Dial("tcp", e.upstream)
		if err != nil {
			return
		}
		s = &session{server: server, in: bufio.NewReaderSize(server, 32<<10), parameters: parametersOf(startup), prepared: map[string]string{}}
		if _, err := server.Write(startup); err != nil {
			server.Close()
			return
		}
	}
	if !e.use(e.servers, s.server) {
		return
	}
	x := s.begin(client)
	goodbye := x.ask()
	e.unuse(e.servers, s.server)
	if goodbye {
		e.reset(x)
	} else {
		e.lost.Store(true)
		x.end()
	}
}

// readStartup returns the client's startup message or request to cancel. It declines encryption.
func readStartup(client net.Conn) ([]byte, error) {
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(client, head); err != nil {
			return nil, err
		}
		size, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if size < 8 || size > startupMost {
			return nil, errors.New("a startup message of the wrong size")
		}
		message := append(head, make([]byte, size-8)...)
		if _, err := io.ReadFull(client, message[8:]); err != nil {
			return nil, err
		}
		if code != tlsRequest && code != encryptionRequest {
			return message, nil
		}
		if _, err := client.Write([]byte("N")); err != nil {
			return nil, err
		}
	}
}

// parametersOf returns the parameters of a startup message, sorted, because clients send them in any order.
func parametersOf(startup []byte) string {
	words := strings.Split(strings.TrimRight(string(startup[8:]), "\x00"), "\x00")
	pairs := slices.Collect(slices.Chunk(words, 2))
	slices.SortFunc(pairs, slices.Compare)
	return strings.Join(slices.Concat(pairs...), "\x00")
}

// exchange is the connection of a client to a session.
type exchange struct {
	*session
	client net.Conn
	// awaited counts the messages that say that Postgres is ready for the next query. A new session sends one by itself.
	awaited atomic.Int64
	statements
	// leaving reports that the client has said goodbye.
	leaving atomic.Bool
	// answered receives the result of answer.
	answered chan bool
}

// begin begins to pass on what Postgres sends.
func (s *session) begin(client net.Conn) *exchange {
	x := &exchange{session: s, client: client, statements: statements{added: map[string]string{}}, answered: make(chan bool, 1)}
	if len(s.greeting) == 0 {
		x.awaited.Store(1)
	}
	go func() { x.answered <- x.answer() }()
	return x
}

// end ends the session.
func (x *exchange) end() {
	x.server.Close()
	<-x.answered
}

// reset resets the session after the client has said goodbye. It reports whether the session can be used again.
func (x *exchange) reset() bool {
	x.leaving.Store(true)
	if x.awaited.Add(2) != 2 {
		x.server.Close() // Postgres is still executing something
	} else if _, err := io.WriteString(x.server, simpleQuery("rollback")+simpleQuery(x.forget(x.prepared))); err != nil { // outside a transaction, "rollback" does nothing
		x.server.Close()
	}
	return <-x.answered
}

// ask passes on what the client sends. It reports whether the client said goodbye.
func (x *exchange) ask() (goodbye bool) {
	in, out := bufio.NewReaderSize(x.client, 32<<10), bufio.NewWriterSize(x.server, 32<<10)
	for {
		kind, size, err := nextMessage(in, out)
		if err == io.EOF && in.Buffered() == 0 {
			return true // to Postgres, this means the same
		}
		if err != nil {
			return false
		}
		switch kind {
		case 'X': // terminate
			return out.Flush() == nil
		case 'Q', 'S', 'F': // query, sync, function call
			x.awaited.Add(1)
		}
		instead, err := x.asks(x.prepared, in, kind, size)
		if err != nil {
			return false
		}
		if instead != "" {
			if _, err := out.WriteString(instead); err != nil {
				return false
			}
			_, err = in.Discard(size)
		} else {
			err = copyMessage(out, in, size)
		}
		if err != nil {
			return false
		}
	}
}

// answer passes on what Postgres sends, until the client has left and the session is reset. It reports whether that succeeded.
func (x *exchange) answer() (reset bool) {
	defer x.client.Close()
	out := bufio.NewWriterSize(x.client, 32<<10)
	ready, failed := len(x.greeting) > 0, false
	for {
		kind, size, err := nextMessage(x.in, out)
		if err != nil {
			return false
		}
		left := x.leaving.Load()
		failed = failed || left && kind == 'E'
		if !ready && (kind == 'S' || kind == 'K' || kind == 'Z' || kind == 'R' && size == 9) { // parameters, key, ready, authenticated
			message, err := x.in.Peek(size)
			if err != nil {
				return false
			}
			x.greeting = append(x.greeting, message...)
			if kind == 'K' {
				x.process = binary.BigEndian.Uint32(message[5:])
			}
			ready = kind == 'Z'
		}
		if kind == '1' { // parse complete
			x.parsed.Add(1)
		}
		var status byte
		if kind == 'Z' {
			message, err := x.in.Peek(size)
			if err != nil {
				return false
			}
			status = message[size-1]
		}
		if left {
			_, err = x.in.Discard(size)
		} else {
			err = copyMessage(out, x.in, size)
		}
		if err != nil {
			return false
		}
		if kind == 'Z' && x.awaited.Add(-1) == 0 && left {
			return status == 'I' && !failed
		}
	}
}

// nextMessage returns the kind and the size of the next message, including its head. Before it waits, it sends what was written to out.
func nextMessage(in *bufio.Reader, out *bufio.Writer) (kind byte, size int, err error) {
	if in.Buffered() < 5 {
		if err := out.Flush(); err != nil {
			return 0, 0, err
		}
	}
	head, err := in.Peek(5)
	if err != nil {
		return 0, 0, err
	}
	return head[0], 1 + int(binary.BigEndian.Uint32(head[1:])), nil
}

// copyMessage copies the next n bytes. Before it waits, it sends what it has.
func copyMessage(out *bufio.Writer, in *bufio.Reader, n int) error {
	for n > 0 {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
			if _, err := in.Peek(1); err != nil {
				return err
			}
		}
		part, err := in.Peek(min(n, in.Buffered()))
		if err != nil {
			return err
		}
		if _, err := out.Write(part); err != nil {
			return err
		}
		if _, err := in.Discard(len(part)); err != nil {
			return err
		}
		n -= len(part)
	}
	return nil
}

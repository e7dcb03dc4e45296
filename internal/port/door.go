package port

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// Path is the path of [Ports.Door]. A port's path is Path followed by the id of a thread, a slash and the port's number.
const Path = arbe.PortPath

const (
	// pingEvery is how often a ping is sent, because proxies close silent connections.
	pingEvery = 30 * time.Second
	// pingWithin limits the time to send a ping or the final message.
	pingWithin = 10 * time.Second
	// piece is the size of a connection's buffer in each direction, in bytes.
	piece = 32 << 10
)

var upgrader = websocket.Upgrader{
	ReadBufferSize: piece, WriteBufferSize: piece, HandshakeTimeout: pingWithin,
	// A request with a cookie is refused, and a browser sends no other credential on its own.
	CheckOrigin: func(*http.Request) bool { return true },
}

// Door serves connections to ports as WebSockets under [Path]. It takes bearer tokens and no cookies. A refusal is an HTTP
// response. On an open connection, the messages are those of [arbe.PortConn].
func (p *Ports) Door() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"{thread}/{port}", func(w http.ResponseWriter, r *http.Request) {
		if err := p.serve(w, r); err != nil {
			f := fault.From(err)
			if f.Code == fault.Internal {
				p.Logger.ErrorContext(r.Context(), "a connection to a port failed", "reference", f.Reference, "error", f.Detail())
			}
			w.Header().Set("Cache-Control", "no-store")
			fault.Answer(w, r, f.Code.HTTPStatus(), f.Code, f.BodyFor(r))
		}
	})
	return mux
}

func (p *Ports) serve(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	who, err := p.Auth.Request(r.Context(), r.Header)
	if err != nil {
		return err
	}
	ctx, thread := who.With(r.Context()), r.PathValue("thread")
	scope, err := p.Auth.Authorize(ctx, auth.Write, auth.Thread(thread))
	if err != nil {
		return err
	}
	ctx, done := p.Auth.While(ctx, auth.Write, auth.Thread(thread))
	defer done()
	to, err := p.dial(ctx, scope, thread, port)
	if err != nil {
		return err
	}
	defer to.Close()
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil // Upgrade has answered
	}
	go keepAlive(ctx, socket)
	_ = arbe.Pass(ctx, &client{arbe.NewPortConn(socket), ctx, socket}, to) // both sides have seen the end
	return nil
}

// portOf returns the port that a request asks for.
func portOf(r *http.Request) (port uint16, err error) {
	if _, cookie := auth.Credential(r.Header); cookie {
		return 0, fault.New(fault.Unauthenticated, "ports are not opened with a cookie", "send an API key as Authorization: Bearer TOKEN")
	}
	if port, err = parsePort(r.PathValue("port")); err != nil {
		return 0, err
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return 0, fault.New(fault.Invalid, "a port is opened as a WebSocket", "use arbe port, or a client for WebSockets; a proxy in between must pass on Upgrade")
	}
	return port, nil
}

// client is the connection to a client. If it ends because the client has lost its permission, its last message says
// so.
type client struct {
	*arbe.PortConn
	ctx    context.Context
	socket *websocket.Conn
}

func (c *client) Close() error {
	if refused := auth.Refused(c.ctx); refused != nil {
		message := websocket.FormatCloseMessage(websocket.ClosePolicyViolation, fault.From(refused).Message)
		_ = c.socket.WriteControl(websocket.CloseMessage, message, time.Now().Add(pingWithin)) // the client may have left
	}
	return c.PortConn.Close()
}

// parsePort reads the number of a port.
func parsePort(text string) (uint16, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return 0, fault.Newf(fault.Invalid, "give a number from 1 to 65535", "%.20q is not a port", text)
	}
	return uint16(number), nil
}

// keepAlive sends pings until ctx ends.
func keepAlive(ctx context.Context, socket *websocket.Conn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if socket.WriteControl(websocket.PingMessage, nil, time.Now().Add(pingWithin)) != nil {
				return // the reader notices the failure, too
			}
		}
	}
}

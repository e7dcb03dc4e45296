package arbe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/gorilla/websocket"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// PortPath is the path at which servers open ports of sandboxes: GET PortPath{thread}/{port}, as a WebSocket.
const PortPath = "/api/port/"

// endWithin is how long the last message of a connection may take to be sent.
const endWithin = 5 * time.Second

// WakeSandbox makes the sandbox of a thread ready for [Client.DialPort]. Like a command, it builds a sandbox if the thread has
// none, and starts a stopped one. Meanwhile it calls waiting from time to time, unless waiting is nil.
func (c *Client) WakeSandbox(ctx context.Context, threadID string, waiting func()) (*arbev1.WakeSandboxResponse, error) {
	stream, err := c.Sandboxes.WakeSandbox(ctx, &arbev1.WakeSandboxRequest{ThreadId: threadID})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		if stream.Msg().GetSandboxId() != "" {
			return stream.Msg(), nil
		}
		if waiting != nil {
			waiting()
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("the server ended the call without an answer"))
}

// DialPort connects to a TCP port of a program in the thread's sandbox. It builds no sandbox; see [Client.WakeSandbox]. It does
// not use the HTTP client of [WithHTTPClient].
func (c *Client) DialPort(ctx context.Context, threadID string, port uint16) (*PortConn, error) {
	header := http.Header{}
	c.bearer.show(header)
	address := "ws" + strings.TrimPrefix(c.url, "http") + PortPath + threadID + "/" + fmt.Sprint(port)
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment}
	socket, res, err := dialer.DialContext(ctx, address, header)
	if err == nil {
		return NewPortConn(socket), nil
	}
	if res != nil && errors.Is(err, websocket.ErrBadHandshake) {
		return nil, refusal(res)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, connect.NewError(connect.CodeUnavailable, err)
}

// PortConn carries a TCP connection over a WebSocket; both sides use it. A binary message carries a piece of the data. An empty
// message ends one direction, and the close of the WebSocket ends both. Other messages mean nothing. One goroutine may read while
// another writes.
type PortConn struct {
	socket *websocket.Conn
	piece  io.Reader // the rest of the message that is being read
	ended  error

	writing sync.Mutex
	closed  bool
}

// NewPortConn returns the connection that a WebSocket carries.
func NewPortConn(socket *websocket.Conn) *PortConn { return &PortConn{socket: socket} }

// Read reads data that the other side has sent. At the end of the data, the error is io.EOF.
func (c *PortConn) Read(p []byte) (int, error) {
	for c.ended == nil {
		fresh := c.piece == nil
		if fresh {
			kind, piece, err := c.socket.NextReader()
			if err != nil {
				c.ended = endOf(err)
				break
			}
			if kind != websocket.BinaryMessage {
				continue
			}
			c.piece = piece
		}
		n, err := c.piece.Read(p)
		switch {
		case errors.Is(err, io.EOF) && n == 0 && fresh:
			c.ended = io.EOF // the message is empty
		case errors.Is(err, io.EOF):
			c.piece = nil
		case err != nil:
			c.ended = endOf(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, c.ended
}

// endOf returns the error for a read that met the end of a WebSocket.
func endOf(err error) error {
	closed := new(websocket.CloseError)
	switch {
	case !errors.As(err, &closed):
		return err
	case closed.Code == websocket.CloseNormalClosure:
		return io.EOF
	case closed.Code == websocket.ClosePolicyViolation:
		return connect.NewError(connect.CodePermissionDenied, errors.New(closed.Text))
	}
	return io.ErrUnexpectedEOF
}

// Write sends data. It waits while the other side does not read.
func (c *PortConn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return 0, io.ErrClosedPipe
	}
	if err := c.socket.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite ends the sending direction. The other direction continues.
func (c *PortConn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.socket.WriteMessage(websocket.BinaryMessage, nil)
}

// Close ends the connection.
func (c *PortConn) Close() error {
	_ = c.socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(endWithin))
	return c.socket.Close()
}

// Duplex is a connection whose directions end separately, such as a [PortConn] or a net.TCPConn.
type Duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Pass passes bytes between two connections, in both directions, until both directions have ended, one fails or ctx ends. Then it
// closes both connections. It returns the error of the failure.
func Pass(ctx context.Context, a, b Duplex) error {
	end := sync.OnceFunc(func() { a.Close(); b.Close() })
	defer end()
	defer context.AfterFunc(ctx, end)()
	ended := make(chan error, 2)
	for _, way := range [][2]Duplex{{a, b}, {b, a}} {
		go func() {
			// Hide other methods, such as WriteTo, so that no more than a buffer is in memory.
			_, err := io.Copy(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]})
			if err == nil {
				err = way[0].CloseWrite()
			}
			ended <- err
		}()
	}
	first := <-ended
	if first != nil {
		end()
	}
	second := <-ended
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if first != nil {
		return first
	}
	return second
}

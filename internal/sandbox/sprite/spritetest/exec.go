//go:build linux

package spritetest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// outlives is how long a program runs on after its connection is lost.
const outlives = 10 * time.Second

// exec wakes a box and runs a program in it. The first byte of a message identifies its contents: 0 input, 1 output, 2
// errors, 3 the exit code, 4 the end of the input.
func (d *Double) exec(w http.ResponseWriter, r *http.Request, name string, f *Fault) {
	d.mu.Lock()
	b, ok := d.boxes[name]
	var err error
	if ok && !b.never {
		if err = b.machine.Start(); err == nil {
			b.shown.Status = "running"
		}
	}
	d.mu.Unlock()
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "not_found", "sprite not found")
		return
	case b.never || err != nil:
		refuse(w, http.StatusServiceUnavailable, "unavailable", "the sprite does not start")
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	cmd, err := b.machine.Command(ctx, hostbox.User, r.URL.Query()["cmd"]...)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "unavailable", err.Error())
		return
	}
	upgrader := websocket.Upgrader{ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	d.busy.Add(1)
	defer d.busy.Done()
	defer conn.Close()
	run(conn, cmd, end, f)
}

// run runs a program for a connection.
func run(conn *websocket.Conn, cmd *exec.Cmd, end func(), f *Fault) {
	to := &messages{conn: conn, hold: f != nil}
	cmd.Stdout, cmd.Stderr = to.stream(1), to.stream(2)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_, _ = to.stream(2).Write([]byte(err.Error()))
		to.send([]byte{3, 127})
		return
	}
	ended := make(chan struct{})
	go feed(conn, stdin, ended, end)
	err = cmd.Wait()
	close(ended)
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if err != nil && code < 0 {
		code = 255
	}
	if f != nil {
		if f.Cut {
			to.send(append([]byte{1}, to.held.Bytes()[:to.held.Len()/2]...))
		}
		return // this cuts the connection
	}
	to.send([]byte{3, byte(code)})
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// feed writes a program's input. If the connection is lost, feed ends the program some time later.
func feed(conn *websocket.Conn, stdin io.WriteCloser, ended <-chan struct{}, end func()) {
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		if len(message) > 0 && message[0] == 0 {
			_, _ = stdin.Write(message[1:]) // the program may not read it
		}
		if len(message) > 0 && message[0] == 4 {
			stdin.Close()
		}
	}
	select {
	case <-ended:
	case <-time.After(outlives):
		end()
	}
}

// messages writes to a connection that several goroutines share.
type messages struct {
	mu   sync.Mutex
	conn *websocket.Conn
	hold bool
	held bytes.Buffer
}

func (m *messages) send(message []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.conn.WriteMessage(websocket.BinaryMessage, message) // the program runs on without its connection
}

// stream returns a writer that sends its input as messages of one kind, or holds them.
func (m *messages) stream(kind byte) io.Writer { return stream{m, kind} }

type stream struct {
	*messages
	kind byte
}

func (s stream) Write(p []byte) (int, error) {
	if s.hold {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held.Write(p)
		return len(p), nil
	}
	s.send(append([]byte{s.kind}, p...))
	return len(p), nil
}

package protocol_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// stream is one end of a stream in memory.
type stream struct {
	io.Reader
	io.WriteCloser
}

// linked returns two links over one stream, and what ends the stream. take gets what the second one opens.
func linked(t *testing.T, take func(*protocol.Conn)) (box *protocol.Link, end func()) {
	t.Helper()
	fromBox, toServer := io.Pipe()
	fromServer, toBox := io.Pipe()
	box = protocol.NewLink(stream{fromServer, toServer}, nil)
	server := protocol.NewLink(stream{fromBox, toBox}, take)
	var all sync.WaitGroup
	end = sync.OnceFunc(func() {
		toServer.Close()
		toBox.Close()
	})
	for _, l := range []*protocol.Link{box, server} {
		all.Go(func() {
			_ = l.Run()
			fromServer.Close()
			fromBox.Close()
		})
	}
	t.Cleanup(func() { end(); all.Wait() })
	return box, end
}

// echo returns everything that comes.
func echo(c *protocol.Conn) {
	go func() {
		_, _ = io.Copy(c, struct{ io.Reader }{c})
		c.Close()
	}()
}

func open(t *testing.T, l *protocol.Link) *protocol.Conn {
	t.Helper()
	c, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConnectionsShareAStream(t *testing.T) {
	t.Parallel()
	box, _ := linked(t, echo)
	var all sync.WaitGroup
	for range 20 {
		c := open(t, box)
		all.Go(func() {
			sent := make([]byte, 1_000_000)
			rand.Read(sent)
			go func() {
				if _, err := c.Write(sent); err != nil {
					t.Error(err)
				}
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes of %d came back (%v)", len(got), len(sent), err)
			}
		})
	}
	all.Wait()
}

func TestAConnectionThatIsNotReadDelaysNoOther(t *testing.T) {
	t.Parallel()
	first := true
	box, _ := linked(t, func(c *protocol.Conn) {
		if !first {
			echo(c)
		}
		first = false
	})
	stuck := open(t, box)
	sent := make(chan int)
	go func() {
		n, err := stuck.Write(make([]byte, 10<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write ends with %v", err)
		}
		sent <- n
	}()
	c := open(t, box)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := stuck.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n := <-sent; n > 1<<20 {
		t.Errorf("%d bytes are sent, and nobody reads them", n)
	}
}

func TestTheEndsOfAConnection(t *testing.T) {
	t.Parallel()
	taken := make(chan *protocol.Conn, 1)
	box, end := linked(t, func(c *protocol.Conn) { taken <- c })
	t.Run("what was written before Close comes", func(t *testing.T) {
		c := open(t, box)
		server := <-taken
		if _, err := server.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		server.Close()
		<-c.Done()
		if got, err := io.ReadAll(c); string(got) != "last words" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("the other side has closed the connection, and it is written to")
		}
	})
	t.Run("a deadline ends a Read that waits", func(t *testing.T) {
		c := open(t, box)
		<-taken
		failed := make(chan error)
		go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
		if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("Close ends a Read that waits", func(t *testing.T) {
		c := open(t, box)
		<-taken
		failed := make(chan error)
		go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
		c.Close()
		if err := <-failed; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	t.Run("the end of the stream", func(t *testing.T) {
		c := open(t, box)
		server := <-taken
		end()
		for _, one := range []*protocol.Conn{c, server} {
			if _, err := one.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			<-one.Done()
		}
		if _, err := box.Open(); err == nil {
			t.Error("a connection is opened over a link that has ended")
		}
	})
}

// A program in the box may take the place of the keeper.
func TestALinkEndsThatBreaksItsProtocol(t *testing.T) {
	t.Parallel()
	piece := func(kind byte, id, size uint32, data string) []byte {
		head := binary.BigEndian.AppendUint32([]byte{kind}, id)
		return append(binary.BigEndian.AppendUint32(head, size), data...)
	}
	full := bytes.Repeat(piece('d', 1, 32<<10, string(make([]byte, 32<<10))), 5)
	for name, text := range map[string][]byte{
		"a piece of no kind":        append(piece('o', 1, 0, ""), piece('?', 1, 0, "")...),
		"a connection twice":        append(piece('o', 1, 0, ""), piece('o', 1, 0, "")...),
		"a piece that is too large": append(piece('o', 1, 0, ""), piece('d', 1, 1<<20, "")...),
		"more than there is room":   append(piece('o', 1, 0, ""), full...),
		"room that it does not owe": append(piece('o', 1, 0, ""), piece('r', 1, 1, "")...),
		"data after its end":        append(piece('o', 1, 0, ""), append(piece('e', 1, 0, ""), piece('d', 1, 1, "x")...)...),
	} {
		l := protocol.NewLink(stream{bytes.NewReader(text), nil}, func(*protocol.Conn) {})
		if err := l.Run(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []byte
	for i := range uint32(10_000) {
		many = append(many, piece('o', i+1, 0, "")...)
	}
	taken := 0
	l := protocol.NewLink(stream{bytes.NewReader(many), nil}, func(*protocol.Conn) { taken++ })
	if err := l.Run(); err == nil || taken > 2*protocol.DoorConnections {
		t.Errorf("%d connections are taken (%v)", taken, err)
	}
}

//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// openDoor passes connections of the box's programs to the server; see [protocol.Door]. It returns the exit code.
func openDoor() int {
	runtime.GOMAXPROCS(1) // the threads count towards the limit of the box
	debug.SetGCPercent(20)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0) // it holds what programs send
	listener, err := listenAtDoor()
	if errors.Is(err, syscall.EADDRINUSE) {
		_, _ = os.Stdout.WriteString(protocol.DoorTaken)
		return 0
	}
	if err == nil {
		_, err = os.Stdout.WriteString(protocol.Connected)
	}
	if err != nil {
		return 1
	}
	silence := time.AfterFunc(protocol.DoorSilence, func() { os.Exit(1) })
	link := protocol.NewLink(serverStream{silence}, nil)
	go admit(listener, link)
	_ = link.Run() // ends when the server does
	return 0
}

func listenAtDoor() (fd int, err error) {
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	// The connections of an earlier process may not have ended completely.
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: protocol.DoorPort, Addr: protocol.DoorAddress})
	}
	if err == nil {
		err = syscall.Listen(fd, protocol.DoorConnections)
	}
	return fd, err
}

// serverStream is the stream to the server. Every byte from there puts the end for silence off.
type serverStream struct{ silence *time.Timer }

func (s serverStream) Read(p []byte) (int, error) {
	n, err := os.Stdin.Read(p)
	s.silence.Reset(protocol.DoorSilence)
	return n, err
}

func (s serverStream) Write(p []byte) (int, error) { return os.Stdout.Write(p) }

// admit accepts connections, as many at once as the server takes.
func admit(listener int, link *protocol.Link) {
	slots := make(chan struct{}, protocol.DoorConnections)
	for {
		slots <- struct{}{}
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		if err != nil {
			<-slots
			if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.ECONNABORTED) {
				time.Sleep(10 * time.Millisecond) // there are too many files, for a moment
			}
			continue
		}
		go func() {
			defer func() { <-slots }()
			carry(fd, link)
		}()
	}
}

// lastWords is how long a program has to read the last answer, and to close its connection.
const lastWords = 500 * time.Millisecond

// carry passes both directions of a connection on until both have ended.
func carry(fd int, link *protocol.Link) {
	local := os.NewFile(uintptr(fd), "connection")
	defer local.Close()
	server, err := link.Open()
	if err != nil {
		return
	}
	defer server.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.Copy(server, readerOf{local})
		select {
		case <-server.Done():
			// The program may still have to read an answer. It would not if its data were left unread.
			_, _ = io.Copy(io.Discard, readerOf{local})
			return
		default:
		}
		if err != nil { // the program is gone
			server.Close()
			return
		}
		_ = server.CloseWrite()
	}()
	if _, err = io.Copy(writerOf{local}, server); err == nil {
		_ = syscall.Shutdown(fd, syscall.SHUT_WR)
	} else {
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
	}
	select {
	case <-sent:
	case <-server.Done(): // the program may send on, but nobody reads it
		select {
		case <-sent:
		case <-time.After(lastWords):
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
			<-sent
		}
	}
}

// readerOf and writerOf hide the other methods of a file, with which io.Copy would do something else.
type (
	readerOf struct{ io.Reader }
	writerOf struct{ io.Writer }
)

package door_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fleet is a process with many connections that follow one stream. It does little besides reading sockets, so that a
// benchmark measures the server. It stands for many machines that each wake up independently. Here, waking for every
// text would take processor time from the server that is still writing, so the fleet reads in rounds and takes the
// arrival times from the kernel.
type fleet struct {
	b     *testing.B
	size  int
	in    io.WriteCloser
	lines *bufio.Scanner
}

// A fleet finds its orders in this environment variable.
const ordersVariable = "ARBE_BENCH_FLEET"

type orders struct {
	Port    int
	Request string
	Size    int
}

// latencies are the times from the stamps of entries to their arrival, in microseconds.
type latencies struct{ P50, P99 float64 }

// follow starts a fleet on the stream of a house's thread, and waits until all its connections follow.
func (w *world) follow(b *testing.B, h house, size int) *fleet {
	b.Helper()
	address, path, _ := strings.Cut(strings.TrimPrefix(w.url, "http://"), "/")
	_, port, _ := strings.Cut(address, ":")
	o := orders{Size: size, Request: fmt.Sprintf("GET /%s%s?offset=-1&live=sse HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, h.stream(), address, h.key)}
	o.Port, _ = strconv.Atoi(port)
	text, _ := json.Marshal(o)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	process := exec.CommandContext(b.Context(), self)
	process.Env = append(os.Environ(), ordersVariable+"="+string(text))
	process.Stderr = os.Stderr
	f := &fleet{b: b, size: size}
	if f.in, err = process.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	f.lines = bufio.NewScanner(out)
	if err := process.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.in.Close(); process.Wait() })
	f.line() // it is ready
	return f
}

// line returns the fleet's next line of output.
func (f *fleet) line() []byte {
	f.b.Helper()
	if !f.lines.Scan() {
		f.b.Fatalf("a fleet of %d ended: %v", f.size, f.lines.Err())
	}
	return f.lines.Bytes()
}

// saw waits until the whole fleet has seen so many entries, and returns their latencies.
func (f *fleet) saw(entries int) (l latencies) {
	f.b.Helper()
	fmt.Fprintln(f.in, entries)
	if err := json.Unmarshal(f.line(), &l); err != nil {
		f.b.Fatal(err)
	}
	return l
}

// stamp returns a payload of 200 bytes with the current time.
func stamp() []byte {
	start := fmt.Sprintf(`{"at":%d,"text":"`, time.Now().UnixNano())
	return []byte(start + strings.Repeat("x", 200-len(start)-2) + `"}`)
}

// watchAsOrdered is the main function of a fleet's process.
func watchAsOrdered(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	poll, err := syscall.EpollCreate1(0)
	if err != nil {
		return err
	}
	for range o.Size {
		socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1); err != nil {
			return err
		}
		if err := syscall.Connect(socket, &syscall.SockaddrInet4{Port: o.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		if _, err := syscall.Write(socket, []byte(o.Request)); err != nil {
			return err
		}
		if err := syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, socket, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(socket)}); err != nil {
			return err
		}
	}
	var expected atomic.Int64
	go func() {
		defer os.Exit(0)
		var entries int64
		for in := bufio.NewReader(os.Stdin); ; expected.Store(entries * int64(o.Size)) {
			if _, err := fmt.Fscanln(in, &entries); err != nil {
				return
			}
		}
	}()
	var took []float64
	ready := 0
	events, buffer, about := make([]syscall.EpollEvent, 1024), make([]byte, 64<<10), make([]byte, syscall.CmsgSpace(16))
	begun := map[int32][]byte{} // the incomplete line of each socket; most have none
	for {
		const pollMilliseconds, round = 50, 8 * time.Millisecond
		n, err := syscall.EpollWait(poll, events[:1], pollMilliseconds)
		if n > 0 {
			time.Sleep(round)
			n, err = syscall.EpollWait(poll, events, 0)
		}
		if err != nil && err != syscall.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			n, rest, _, _, err := syscall.Recvmsg(int(e.Fd), buffer, about, 0)
			if err != nil || n == 0 {
				return fmt.Errorf("the server hung up: %w", err)
			}
			now := arrival(about[:rest])
			text := buffer[:n]
			if len(begun) > 0 && begun[e.Fd] != nil {
				text = append(begun[e.Fd], text...)
				delete(begun, e.Fd)
			}
			if end := bytes.LastIndexByte(text, '\n') + 1; end < len(text) {
				text, begun[e.Fd] = text[:end], bytes.Clone(text[end:])
			}
			if ready < o.Size {
				if ready += bytes.Count(text, []byte(`"upToDate":true`)); ready == o.Size {
					fmt.Println("ready")
				}
			}
			for {
				_, rest, found := bytes.Cut(text, []byte(`"at":`))
				if !found {
					break
				}
				digits, rest, _ := bytes.Cut(rest, []byte(","))
				at, err := strconv.ParseInt(string(digits), 10, 64)
				if err != nil {
					return err
				}
				took, text = append(took, float64(now-at)/1e3), rest
			}
		}
		if want := expected.Load(); want > 0 && int64(len(took)) >= want {
			slices.Sort(took)
			text, _ := json.Marshal(latencies{took[len(took)/2], took[len(took)*99/100]})
			fmt.Println(string(text))
			took = nil
			expected.Store(0)
		}
	}
}

// arrival returns when the kernel received a message, in nanoseconds, from Recvmsg's control data.
func arrival(about []byte) int64 {
	seconds := binary.NativeEndian.Uint64(about[syscall.SizeofCmsghdr:])
	nanoseconds := binary.NativeEndian.Uint64(about[syscall.SizeofCmsghdr+8:])
	return int64(seconds)*1e9 + int64(nanoseconds)
}

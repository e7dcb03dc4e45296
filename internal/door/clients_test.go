package door_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clients is a process that sends requests to one server in turns. It does as little else as possible, so that a
// benchmark measures the server. It stands for clients on other machines.
type clients struct {
	b     *testing.B
	in    io.WriteCloser
	lines *bufio.Scanner
}

// jobVariable is the environment variable in which a process of clients finds its job.
const jobVariable = "ARBE_BENCH_CLIENTS"

// job is what clients do in each turn: either send each request repeatedly over its own connection for some time, or
// read a stream from start to end.
type job struct {
	Port     int
	Requests []string
	For      time.Duration
	// Read is the URL of a stream, and Accept and Key are the headers to read it with.
	Read, Accept, Key string
}

// turn is the result of a turn.
type turn struct {
	// Done is the number of answered requests, or of bytes read.
	Done    int
	Seconds float64
	// busy is the processor time of this process, without Postgres, in seconds.
	busy float64
}

// rate returns the requests or bytes per second.
func (t turn) rate() float64 { return float64(t.Done) / t.Seconds }

// cost returns the processor time per request or byte, in seconds.
func (t turn) cost() float64 { return t.busy / float64(t.Done) }

// start starts clients with a job.
func (j job) start(b *testing.B) *clients {
	b.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	process := exec.CommandContext(b.Context(), self)
	process.Env = append(os.Environ(), jobVariable+"="+string(text))
	process.Stderr = os.Stderr
	c := &clients{b: b}
	if c.in, err = process.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := process.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.in.Close(); process.Wait() })
	return c
}

// turn makes the clients do another turn.
func (c *clients) turn() (t turn) {
	c.b.Helper()
	before := busy()
	fmt.Fprintln(c.in)
	if !c.lines.Scan() {
		c.b.Fatalf("clients ended: %v", c.lines.Err())
	}
	if err := json.Unmarshal(c.lines.Bytes(), &t); err != nil {
		c.b.Fatal(err)
	}
	t.busy = busy() - before
	return t
}

// busy returns the processor time that this process has used, in seconds.
func busy() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// workAsOrdered is the main function of the clients' process.
func workAsOrdered(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	work := j.read
	if j.Read == "" {
		w, err := j.dial()
		if err != nil {
			return err
		}
		work = w.write
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		start := time.Now()
		done, err := work()
		if err != nil {
			return err
		}
		text, _ := json.Marshal(turn{Done: done, Seconds: time.Since(start).Seconds()})
		fmt.Println(string(text))
	}
	os.Exit(0)
	return nil
}

// writers are connections over which requests are written.
type writers struct {
	job
	poll     int
	requests map[int32][]byte // by socket
}

func (j job) dial() (*writers, error) {
	w := &writers{job: j, requests: map[int32][]byte{}}
	var err error
	if w.poll, err = syscall.EpollCreate1(0); err != nil {
		return nil, err
	}
	for _, request := range j.Requests {
		socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			return nil, err
		}
		if err := syscall.SetsockoptInt(socket, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
			return nil, err
		}
		if err := syscall.Connect(socket, &syscall.SockaddrInet4{Port: j.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return nil, err
		}
		if err := syscall.EpollCtl(w.poll, syscall.EPOLL_CTL_ADD, socket, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(socket)}); err != nil {
			return nil, err
		}
		w.requests[int32(socket)] = []byte(request)
	}
	return w, nil
}

// write sends every request, and repeats each once it is answered, until the time is over.
func (w *writers) write() (done int, err error) {
	until := time.Now().Add(w.For)
	for socket, request := range w.requests {
		if _, err := syscall.Write(int(socket), request); err != nil {
			return done, err
		}
	}
	events, buffer := make([]syscall.EpollEvent, 64), make([]byte, 4<<10)
	for waiting := len(w.requests); waiting > 0; {
		n, err := syscall.EpollWait(w.poll, events, -1)
		if errors.Is(err, syscall.EINTR) {
			continue
		} else if err != nil {
			return done, err
		}
		again := time.Now().Before(until)
		for _, e := range events[:n] {
			n, err := syscall.Read(int(e.Fd), buffer)
			if err != nil {
				return done, err
			}
			// Such an answer has no body and arrives in one piece.
			if answer := buffer[:n]; !bytes.HasPrefix(answer, []byte("HTTP/1.1 204 ")) || !bytes.HasSuffix(answer, []byte("\r\n\r\n")) {
				return done, fmt.Errorf("a write is answered: %s", answer)
			}
			done++
			if !again {
				waiting--
			} else if _, err := syscall.Write(int(e.Fd), w.requests[e.Fd]); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// read reads a stream page after page.
func (j job) read() (bytes int, err error) {
	client := http.Client{Transport: &http.Transport{ReadBufferSize: 256 << 10, DisableCompression: true}}
	defer client.CloseIdleConnections()
	buffer := make([]byte, 256<<10)
	for offset := "0000000000000000_0000000000000000"; ; {
		request, err := http.NewRequest("GET", j.Read+"?offset="+offset, nil)
		if err != nil {
			return bytes, err
		}
		request.Header.Set("Accept", j.Accept)
		request.Header.Set("Authorization", "Bearer "+j.Key)
		res, err := client.Do(request)
		if err != nil {
			return bytes, err
		}
		for err == nil {
			var n int
			n, err = res.Body.Read(buffer)
			bytes += n
		}
		res.Body.Close()
		if err != io.EOF || res.StatusCode != http.StatusOK {
			return bytes, fmt.Errorf("a read is answered %s: %w", res.Status, err)
		}
		if res.Header.Get("Stream-Up-To-Date") == "true" {
			return bytes, nil
		}
		offset = res.Header.Get("Stream-Next-Offset")
	}
}

// writing returns a request that appends a body to a stream with an API key.
func writing(url, key, body string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/")
	return fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, host, key, len(body), body)
}

package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// With the argument Door, the keeper listens on DoorPort of DoorAddress, which only programs of the box reach. It passes their
// connections to the server, over a [Link] on its input and output. It prints Connected first, or DoorTaken if something else
// listens there. It ends with its input, or when it has received nothing for DoorSilence.
const (
	Door      = "door"
	DoorTaken = "-"
	DoorPort  = 7179
	// DoorOrigin is where programs in the box reach the server's doors.
	DoorOrigin = "http://127.19.0.1:7179"
	// DoorConnections limits the connections at once. Others wait.
	DoorConnections = 64

	DoorSilence = 3 * time.Minute
)

// DoorAddress is not 127.0.0.1, so that it is in the way of no program of the box, and [Dial] does not reach it.
var DoorAddress = [4]byte{127, 19, 0, 1}

// Link carries connections over one stream. Each side sends only as much of a connection as the other one has room for, so that
// a connection that is read slowly delays no other. Neither side trusts the other. A Link is safe for concurrent use.
type Link struct {
	stream io.ReadWriter
	take   func(*Conn)

	writing sync.Mutex

	mu    sync.Mutex
	conns map[uint32]*Conn
	last  uint32
	over  bool
}

const (
	// window is how much of a connection may be under way, in bytes.
	window = 128 << 10
	// mostPiece limits the data of a piece, in bytes.
	mostPiece = 32 << 10
)

// A piece is its kind, the number of its connection, a size (both uint32) and, for pieceData, as many bytes.
const (
	pieceOpen  = 'o'
	pieceData  = 'd'
	pieceRoom  = 'r' // the sender of the piece has read this many bytes
	pieceEnd   = 'e' // no more data follows
	pieceClose = 'c' // nothing that is sent will be read any more
	pieceAlive = 'a'

	pieceHead = 1 + 4 + 4
)

// NewLink returns a link over a stream. If take is not nil, the other side may open connections: each one is passed to take,
// which must not block. Nothing happens before Run.
func NewLink(stream io.ReadWriter, take func(*Conn)) *Link {
	return &Link{stream: stream, take: take, conns: map[uint32]*Conn{}}
}

// Run carries data until the stream ends or the other side breaks the protocol. Then all connections end.
func (l *Link) Run() error {
	err := l.run()
	l.mu.Lock()
	l.over = true
	conns := l.conns
	l.conns = map[uint32]*Conn{}
	l.mu.Unlock()
	for _, c := range conns {
		c.fail(io.ErrUnexpectedEOF)
	}
	return err
}

var errBroken = errors.New("the other side of the link breaks its protocol")

func (l *Link) run() error {
	var head [pieceHead]byte
	data := make([]byte, mostPiece)
	for {
		if _, err := io.ReadFull(l.stream, head[:]); err != nil {
			return err
		}
		kind, id, size := head[0], binary.BigEndian.Uint32(head[1:]), binary.BigEndian.Uint32(head[5:])
		if kind == pieceData {
			if size > mostPiece {
				return errBroken
			}
			if _, err := io.ReadFull(l.stream, data[:size]); err != nil {
				return err
			}
		}
		if err := l.receive(kind, id, size, data); err != nil {
			return fmt.Errorf("%w: piece %q", err, kind)
		}
	}
}

// receive handles a piece. It does not block.
func (l *Link) receive(kind byte, id, size uint32, data []byte) error {
	l.mu.Lock()
	c := l.conns[id]
	l.mu.Unlock()
	switch {
	case kind == pieceAlive:
		return nil
	case kind == pieceOpen:
		if l.take == nil || c != nil {
			return errBroken
		}
		c, ok := l.add(id)
		if !ok {
			return errBroken
		}
		l.take(c)
		return nil
	case c == nil: // it was closed here
		return nil
	}
	switch kind {
	case pieceData:
		return c.receive(data[:size])
	case pieceRoom:
		return c.makeRoom(int64(size))
	case pieceEnd:
		c.end(nil)
	case pieceClose:
		l.drop(id)
		c.end(io.ErrClosedPipe)
	default:
		return errBroken
	}
	return nil
}

// Open opens a connection.
func (l *Link) Open() (*Conn, error) {
	l.mu.Lock()
	l.last++
	id := l.last
	l.mu.Unlock()
	c, ok := l.add(id)
	if !ok {
		return nil, io.ErrClosedPipe
	}
	return c, l.send(pieceOpen, id, 0, nil)
}

// add adds a connection. ok is false if there are too many, or if the link has ended.
func (l *Link) add(id uint32) (c *Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || len(l.conns) >= 2*DoorConnections { // the other side does not count those that it has just closed
		return nil, false
	}
	c = &Conn{link: l, id: id, room: window, done: make(chan struct{})}
	c.changed = sync.NewCond(&c.mu)
	l.conns[id] = c
	return c, true
}

func (l *Link) drop(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, id)
}

// Alive tells the other side that this one is there.
func (l *Link) Alive() error { return l.send(pieceAlive, 0, 0, nil) }

func (l *Link) send(kind byte, id, size uint32, data []byte) error {
	piece := make([]byte, pieceHead, pieceHead+len(data))
	piece[0] = kind
	binary.BigEndian.PutUint32(piece[1:], id)
	binary.BigEndian.PutUint32(piece[5:], size)
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.stream.Write(append(piece, data...))
	return err
}

// Conn is a connection over a [Link]. It is safe for concurrent use.
type Conn struct {
	link *Link
	id   uint32
	// done is closed when nothing that is written here will be read any more.
	done chan struct{}

	mu            sync.Mutex
	changed       *sync.Cond
	unread        []byte
	read          int   // bytes that were read, and of which the other side was not told
	room          int64 // how much the other side takes
	noMore        bool  // the other side sends no more
	sent          bool  // this side sends no more
	noRead        error // why Read fails once everything is read, if not with io.EOF
	noWrite       error // why Write fails
	closed        bool
	reads, writes deadline
}

// deadline is a time after which an operation fails.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (c *Conn) receive(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noMore || len(c.unread)+c.read+len(data) > window {
		return errBroken
	}
	c.unread = append(c.unread, data...)
	c.changed.Broadcast()
	return nil
}

func (c *Conn) makeRoom(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room += size; c.room > window {
		return errBroken
	}
	c.changed.Broadcast()
	return nil
}

// end records that the other side sends no more, and reads no more if err is not nil.
func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noMore = true
	c.refuse(err)
}

// fail ends both directions.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.noMore && c.noRead == nil {
		c.noRead = err
	}
	c.refuse(err)
}

// refuse makes Write fail with err, unless that is nil or it fails already. The caller holds mu.
func (c *Conn) refuse(err error) {
	if err != nil && c.noWrite == nil {
		c.noWrite = err
		close(c.done)
	}
	c.changed.Broadcast()
}

// Done is closed when the other side has closed the connection, or the link has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Read reads what the other side has sent.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	for {
		switch {
		case c.closed:
			err = os.ErrClosed
		case c.reads.passed():
			err = os.ErrDeadlineExceeded
		case len(c.unread) > 0 || len(p) == 0:
			n = copy(p, c.unread)
			if c.unread = c.unread[n:]; len(c.unread) == 0 {
				c.unread = nil
			}
		case c.noRead != nil:
			err = c.noRead
		case c.noMore:
			err = io.EOF
		default:
			c.changed.Wait()
			continue
		}
		break
	}
	told := 0
	if c.read += n; c.read >= window/4 && !c.noMore {
		told, c.read = c.read, 0
	}
	c.mu.Unlock()
	if told > 0 {
		_ = c.link.send(pieceRoom, c.id, uint32(told), nil) // if it fails, the link ends
	}
	return n, err
}

// Write sends data. It waits until the other side has room for it.
func (c *Conn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		size, err := c.reserve(len(p) - n)
		if err == nil {
			err = c.link.send(pieceData, c.id, uint32(size), p[n:n+size])
		}
		if err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// reserve waits for room at the other side, and takes it.
func (c *Conn) reserve(size int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.sent:
			return 0, os.ErrClosed
		case c.noWrite != nil:
			return 0, c.noWrite
		case c.writes.passed():
			return 0, os.ErrDeadlineExceeded
		case c.room > 0:
			size = int(min(int64(size), c.room, mostPiece))
			c.room -= int64(size)
			return size, nil
		}
		c.changed.Wait()
	}
}

// CloseWrite ends this direction. The other one stays open.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	done := c.sent || c.closed
	c.sent = true
	c.mu.Unlock()
	if done {
		return nil
	}
	return c.link.send(pieceEnd, c.id, 0, nil)
}

// Close ends the connection. The other side gets what was written before.
func (c *Conn) Close() error {
	c.mu.Lock()
	done := c.closed
	c.closed = true
	for _, d := range []*deadline{&c.reads, &c.writes} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	if done {
		return nil
	}
	c.link.drop(c.id)
	return c.link.send(pieceClose, c.id, 0, nil)
}

// SetDeadline sets the time after which Read and Write fail; zero for none.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets it for Read only.
func (c *Conn) SetReadDeadline(t time.Time) error { c.limit(&c.reads, t); return nil }

// SetWriteDeadline sets it for Write only, as far as that waits for room.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.limit(&c.writes, t); return nil }

func (c *Conn) limit(d *deadline, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.at = t; !t.IsZero() && !c.closed {
		d.timer = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
	c.changed.Broadcast()
}

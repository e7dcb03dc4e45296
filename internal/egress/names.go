package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/time/rate"
)

// pool is the network from which each name gets an address. It is reserved for benchmarks (RFC 2544), so no host of the
// internet has such an address.
var pool = netip.MustParsePrefix("198.18.0.0/15")

const (
	// maxNames is how many names have an address at once. A new name then gets the address of the oldest one.
	maxNames = 4096
	// nameTTL is how long programs may cache an address, in seconds. It is short, because another server may give the
	// name another address.
	nameTTL = 5
	// maxQuestion limits a question about a name, in bytes.
	maxQuestion = 4096
	// newNamesAtOnce is how many names a sandbox can make the server look up at once, and newNameEach how long it then waits for
	// each further one. Names that were looked up before do not count.
	newNamesAtOnce, newNameEach = 300, 100 * time.Millisecond
	// questionTime is how long a connection for questions may be silent.
	questionTime = 10 * time.Second
)

// names gives each name its own address. The address of a connection then shows its name, whatever its protocol. Name servers
// are not asked, so that no question can carry data out. It is safe for concurrent use.
type names struct {
	mu    sync.Mutex
	given int            // how many addresses were given to names
	list  []string       // the names, in the order of their addresses in the pool
	index map[string]int // by name
}

func newNames() *names { return &names{index: map[string]int{}} }

// address returns the address of a name, and assigns one if it has none.
func (n *names) address(name string) netip.Addr {
	if name == DoorHost {
		return doorAddress
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.index[name]
	if !ok {
		if i = n.given % maxNames; i == len(n.list) {
			n.list = append(n.list, name)
		} else {
			delete(n.index, n.list[i])
			n.list[i] = name
		}
		n.index[name] = i
		n.given++
	}
	at := pool.Addr().As4()
	at[2], at[3] = byte((i+1)>>8), byte(i+1)
	return netip.AddrFrom4(at)
}

// name returns the name that has an address; empty if none has.
func (n *names) name(at netip.Addr) string {
	if at == doorAddress {
		return DoorHost
	}
	if !at.Is4() || !pool.Contains(at) {
		return ""
	}
	bytes := at.As4()
	if bytes[1] != pool.Addr().As4()[1] {
		return ""
	}
	i := (int(bytes[2])<<8 | int(bytes[3])) - 1
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 0 || i >= len(n.list) {
		return ""
	}
	return n.list[i]
}

// answer returns the answer to a question: the name's IPv4 address or, for any other type, an answer without a record.
func (n *names) answer(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	if h.Response {
		return nil, errors.New("it is an answer")
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true})
	b.EnableCompression()
	if err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers()); err != nil {
		return nil, err
	}
	if name := normal(q.Name.String()); q.Type == dnsmessage.TypeA && q.Class == dnsmessage.ClassINET && validName.MatchString(name) {
		if err := b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: nameTTL}, dnsmessage.AResource{A: n.address(name).As4()}); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// answerPackets answers the questions of a socket until it is closed.
func (n *names) answerPackets(conn net.PacketConn) {
	buf := make([]byte, maxQuestion)
	for {
		size, from, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the error of one packet
		}
		if answer, err := n.answer(buf[:size]); err == nil {
			_, _ = conn.WriteTo(answer, from) // the program asks again
		}
	}
}

// answerStream answers the questions of a connection until it ends.
func (n *names) answerStream(conn net.Conn) {
	for {
		_ = conn.SetDeadline(time.Now().Add(questionTime)) // an error is ignored, because the read then fails too
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		question := make([]byte, min(int(size[0])<<8|int(size[1]), maxQuestion))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		answer, err := n.answer(question)
		if err != nil {
			return
		}
		if _, err := conn.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
			return
		}
	}
}

// lookups limits how fast a sandbox makes the server look up ever new names, each of which may carry data to the name servers of
// a domain that the policy allows. It is safe for concurrent use.
type lookups struct {
	mu   sync.Mutex
	seen map[string]bool
	pace *rate.Limiter
}

// limited returns a dialer that waits before it looks up a new name.
func limited(dial Dialer) Dialer {
	l := &lookups{seen: map[string]bool{}, pace: rate.NewLimiter(rate.Every(newNameEach), newNamesAtOnce)}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := l.wait(ctx, address); err != nil {
			return nil, err
		}
		return dial(ctx, network, address)
	}
}

func (l *lookups) wait(ctx context.Context, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // nothing is looked up
	}
	l.mu.Lock()
	before := l.seen[host]
	if !before {
		if len(l.seen) >= maxNames {
			clear(l.seen)
		}
		l.seen[host] = true
	}
	l.mu.Unlock()
	if before {
		return nil
	}
	return l.pace.Wait(ctx)
}

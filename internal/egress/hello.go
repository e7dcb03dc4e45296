package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// accessDenied is the TLS alert for a connection that a policy forbids (RFC 8446, section 6.2). Programs show its name.
var accessDenied = []byte{21, 3, 1, 0, 2, 2, 49}

// sshDisconnect returns a server's message that disconnects an SSH client (RFC 4253, section 11.1). Clients print its
// text.
func sshDisconnect(text string) []byte {
	const disconnect, notAllowed = 1, 1
	payload := binary.BigEndian.AppendUint32([]byte{disconnect}, notAllowed)
	payload = append(binary.BigEndian.AppendUint32(payload, uint32(len(text))), text...)
	payload = binary.BigEndian.AppendUint32(payload, 0) // no language
	padding := 8 - (5+len(payload))%8
	if padding < 4 {
		padding += 8
	}
	packet := binary.BigEndian.AppendUint32([]byte("SSH-2.0-arbe\r\n"), uint32(1+len(payload)+padding))
	packet = append(append(packet, byte(padding)), payload...)
	return append(packet, make([]byte, padding)...)
}

// hello is the beginning of a connection.
type hello struct {
	said   []byte // the bytes read so far; nil if the program was silent
	server string // the server name that a TLS client sends; empty without one
	broken bool   // it is TLS, but its hello did not come completely, or cannot be read
}

// fits reports whether a connection with this hello can be for a host: a TLS hello must not name a different host. A hello that
// the gate cannot read does not fit, because the host may be able to read it.
func (h hello) fits(host string) bool {
	return !h.broken && (h.server == "" || normal(h.server) == normal(host))
}

var errRead = errors.New("the hello was read")

// readHello reads the beginning of a connection: the complete hello of TLS, or the first bytes of another protocol. within
// limits the time until the first byte; 0 means no limit. The rest of a hello must arrive within rest.
func readHello(conn net.Conn, within, rest time.Duration) (h hello) {
	if within > 0 {
		_ = conn.SetReadDeadline(time.Now().Add(within)) // an error is ignored, because the read then fails too
	}
	defer conn.SetReadDeadline(time.Time{})
	first := make([]byte, 4<<10)
	n, _ := conn.Read(first)
	if n == 0 {
		return h
	}
	_ = conn.SetReadDeadline(time.Now().Add(rest))
	if n == 1 && mayBeTLS(first[:1]) {
		more, _ := conn.Read(first[1:])
		n += more
	}
	if h.said = first[:n]; !mayBeTLS(h.said) {
		return h
	}
	h.broken = true
	r := &recorder{Conn: conn, pending: bytes.NewReader(h.said), said: bytes.Clone(h.said)}
	_ = tls.Server(r, &tls.Config{GetConfigForClient: func(c *tls.ClientHelloInfo) (*tls.Config, error) {
		h.server, h.broken = c.ServerName, false
		return nil, errRead
	}}).Handshake() // always fails; only the bytes that it read matter
	h.said = r.said
	return h
}

// mayBeTLS reports whether a connection that begins with these bytes is TLS: a record of any of its types, because servers
// accept some of them before the hello, and the major version.
func mayBeTLS(said []byte) bool {
	const firstType, lastType, majorVersion = 20, 24, 3
	return said[0] >= firstType && said[0] <= lastType && (len(said) == 1 || said[1] == majorVersion)
}

// recorder is a read-only connection that records what was read.
type recorder struct {
	net.Conn
	pending *bytes.Reader // what was read before
	said    []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	if r.pending.Len() > 0 {
		return r.pending.Read(p)
	}
	n, err := r.Conn.Read(p)
	r.said = append(r.said, p[:n]...)
	return n, err
}

func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

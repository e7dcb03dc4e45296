package dbtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"maps"
	"sync/atomic"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// statements lets a session keep the statements that its clients prepared. Parsing and planning them again for each test took a third of
// Postgres' time. When the next client prepares one again, Postgres gets an empty statement without a name in its place: the answer is
// the same, and it costs nothing. So a name must always stand for the same text, as pgx's own do, which are digests.
//
// If anything else happened to statements, such as an error while one was parsed, the session forgets all of them.
type statements struct {
	// added are the messages that prepared statements of this client, by name.
	added map[string]string
	// asked counts the client's parse messages, and parsed those that Postgres has completed.
	asked  int64
	parsed atomic.Int64
	// unclear reports that it is not known which statements there are.
	unclear bool
}

// emptyParse is a parse message with an empty name, an empty text and no types of parameters.
const emptyParse = "P\x00\x00\x00\x08\x00\x00\x00\x00"

// changesStatements matches texts that may prepare or forget statements, and forgetsStatements those that forget all.
var (
	changesStatements = lazyregexp.New(`(?i)\b(prepare|deallocate|discard)\b`)
	forgetsStatements = lazyregexp.New(`(?i)^\s*(deallocate|discard)\s+all\b`)
)

// asks notes what a client's next message does to statements, of which earlier clients prepared some. It returns the message to send
// instead; "" to pass it on.
func (st *statements) asks(prepared map[string]string, in *bufio.Reader, kind byte, size int) (instead string, err error) {
	if kind == 'P' {
		st.asked++
	}
	if kind != 'P' && kind != 'Q' && kind != 'C' { // parse, query, close
		return "", nil
	}
	if size > in.Size() {
		st.unclear = true
		return "", nil
	}
	raw, err := in.Peek(size)
	if err != nil {
		return "", err
	}
	text := raw[5:]
	switch kind {
	case 'C':
		if text[0] == 'S' { // of a statement, not of a portal
			st.unclear = true
			delete(prepared, string(bytes.TrimRight(text[1:], "\x00")))
		}
		return "", nil
	case 'P':
		name, _, _ := bytes.Cut(text, []byte{0})
		if len(name) > 0 && prepared[string(name)] == string(raw) {
			return emptyParse, nil
		}
		if len(name) > 0 {
			st.added[string(name)] = string(raw)
		}
	}
	if changesStatements.MatchString(string(text)) {
		st.unclear = true
	}
	if forgetsStatements.MatchString(string(text)) {
		clear(prepared)
	}
	return "", nil
}

// forget returns the statements that reset a session whose client has left and whose queries have ended. It adds what the client
// prepared to what earlier clients prepared.
func (st *statements) forget(prepared map[string]string) string {
	if st.unclear || st.asked != st.parsed.Load() {
		clear(prepared)
		return "discard all"
	}
	maps.Copy(prepared, st.added)
	// All that "discard all" does, without "deallocate all" and "discard plans".
	return "close all; set session authorization default; reset all; unlisten *; select pg_advisory_unlock_all(); discard temp; discard sequences"
}

// simpleQuery returns the message that executes a text.
func simpleQuery(text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(text)+1))) + text + "\x00"
}

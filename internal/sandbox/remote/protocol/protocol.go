// Package protocol defines the messages between a server and the keeper, its program in a box.
//
// The keeper has two roles, besides those of the arguments [First], [Dial] and [Door]. Called without arguments, it reads one
// [Request] from its standard input, writes one [Reply] and exits. To launch a command, it starts itself again. That second
// process stays with the command: it starts the command, records its output and exit code, and takes requests about it from a
// socket beside the record.
//
// All keepers in a box share the formats of the record and the socket. They may be of different versions, because a box may
// outlive several servers.
package protocol

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// The keeper's paths in a box. The box's user owns them all.
const (
	Root    = "/var/lib/arbe"
	Records = Root + "/records" // a directory for each launched command
	Inbox   = Root + "/in"      // pieces of files that are being sent
)

// First is the argument that makes the keeper process 1 of a box, for providers that can choose it.
const First = "first"

// With the arguments Dial and a port, the keeper connects to that port of the box's loopback and forwards its input and
// output. It prints Connected first. If nothing listens, its exit code is NobodyListens.
const (
	Dial          = "dial"
	Connected     = "+"
	NobodyListens = 3
)

// Request is one request.
type Request struct {
	Op Op `json:"op"`
	// ID names the launched command that the request concerns.
	ID string `json:"id,omitempty"`

	// For Launch: the command, see sandbox.Command. With Wait, Launch also follows it.
	Argv     []string          `json:"argv,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Dir      string            `json:"dir,omitempty"`
	Merged   bool              `json:"merged,omitempty"`
	Complete bool              `json:"complete,omitempty"`
	Input    bool              `json:"input,omitempty"`
	// Terminal is the size of the command's terminal, for Launch and Resize; nil for none.
	Terminal *Size `json:"terminal,omitempty"`

	// Position is where Follow and Fetch begin, where Release stops, the offset of Input's data, or the new limit for Extend.
	Position int64 `json:"position,omitempty"`
	// Writer identifies a writer of Input to a terminal. Positions are its own. It is empty for a command without a terminal.
	Writer string `json:"writer,omitempty"`
	// Release makes Follow release the output before Position.
	Release bool `json:"release,omitempty"`
	// Most limits the data in the reply, in bytes.
	Most int `json:"most,omitempty"`
	// Wait limits how long the reply may wait for news.
	Wait time.Duration `json:"wait,omitempty"`
	// Patience is how long End gives the command to end by itself.
	Patience time.Duration `json:"patience,omitempty"`
	// Last means that the input ends after this data.
	Last bool `json:"last,omitempty"`

	// Path is a file, and Mode its new mode.
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	// Parcel names the file in the inbox that Place moves. Its pieces are numbered from 0.
	Parcel string `json:"parcel,omitempty"`
	Pieces int    `json:"pieces,omitempty"`
	// Identity identifies the file that an earlier Fetch read.
	Identity string `json:"identity,omitempty"`

	// Secrets are the contents of files, by their names, for [Secrets].
	Secrets map[string][]byte `json:"secrets,omitempty"`
	// Secret is for Launch: the command receives files, which must be there.
	Secret bool `json:"secret,omitempty"`

	// Forgotten are other launched commands, whose records are deleted before the request is answered.
	Forgotten []string `json:"forgotten,omitempty"`

	// DataIn is the file in the inbox that holds the data of the request; see Data.
	DataIn string `json:"data_in,omitempty"`
	// Data follows the request, or is in a file if it is large.
	Data []byte `json:"-"`
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Op is the operation that a request asks for.
type Op string

// The operations. Repeating one is harmless, because an answer may be lost.
const (
	Launch    Op = "launch"
	Follow    Op = "follow"
	Input     Op = "input"
	Release   Op = "release"
	Extend    Op = "extend"
	Interrupt Op = "interrupt"
	HangUp    Op = "hangup"
	Resize    Op = "resize"
	End       Op = "end"
	Forget    Op = "forget"
	Place     Op = "place" // move a file from the inbox to its destination
	Drop      Op = "drop"  // give up a file in the inbox
	Fetch     Op = "fetch" // read a part of a file
)

// Reply answers a request.
type Reply struct {
	// Reason says why the request failed; empty if it succeeded.
	Reason Reason `json:"reason,omitempty"`
	// Errno is the system's error, if that is the reason, and Detail its text.
	Errno  int    `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`

	// Records are the records that Follow found. Their data is concatenated in the reply's data.
	Records []Record `json:"records,omitempty"`
	// Accepted is the position up to which input was accepted.
	Accepted int64 `json:"accepted,omitempty"`
	// Terminal means that the command of Input or Resize has a terminal.
	Terminal bool `json:"terminal,omitempty"`
	// Pending means that the request is not finished and must be repeated.
	Pending bool `json:"pending,omitempty"`
	// Identity identifies the file that Fetch read. Last means that Fetch reached its end.
	Identity string `json:"identity,omitempty"`
	Last     bool   `json:"last,omitempty"`

	Data []byte `json:"-"`
}

// Reason is why a request failed.
type Reason string

// The reasons.
const (
	BadRequest  Reason = "request"
	NoDirectory Reason = "directory" // there is no such directory to start in
	TooLong     Reason = "length"    // the arguments or the environment are too long
	NoRoom      Reason = "room"      // no process could be started
	Unknown     Reason = "unknown"   // the command was not launched, or was forgotten
	NoInput     Reason = "input"     // the command no longer reads input
	NoTerminal  Reason = "terminal"  // no terminal could be opened, or the command has none
	FileError   Reason = "file"
	NotRegular  Reason = "regular" // the file is not a regular file
	Changed     Reason = "changed" // the file was replaced
	Failed      Reason = "failed"
)

// Record is a piece of the record of a command; see sandbox.Record. A position is a number of bytes of output, plus one:
// position 1 is after the start.
type Record struct {
	Kind        string `json:"kind"`
	Next        int64  `json:"next"`
	Nanoseconds int64  `json:"time"`
	Size        int    `json:"size,omitempty"` // the length of its data
	ExitCode    int    `json:"exit_code,omitempty"`
	OutOfMemory bool   `json:"oom,omitempty"`
	BoxEnded    bool   `json:"box_ended,omitempty"`
	Dropped     int64  `json:"dropped,omitempty"`
}

// head marks the line with a reply, because a box's programs may print something before it.
const head = "arbe-keeper:"

// EncodeRequest encodes a request.
func EncodeRequest(r Request) ([]byte, error) { return frame(r, r.Data) }

// DecodeRequest decodes a request.
func DecodeRequest(text []byte) (r Request, err error) {
	r.Data, err = unframe(text, &r)
	return r, err
}

// EncodeReply encodes a reply as a line of text, because not every provider forwards binary output unchanged. It compresses
// the reply, because most output is text.
func EncodeReply(r Reply) ([]byte, error) {
	framed, err := frame(r, r.Data)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(framed); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(head)+base64.StdEncoding.EncodedLen(packed.Len())+1)
	line = base64.StdEncoding.AppendEncode(append(line, head...), packed.Bytes())
	return append(line, '\n'), nil
}

// MaxReply limits a reply, in bytes, because a box may send anything.
const MaxReply = 16 << 20

// DecodeReply finds the reply in a keeper's output. ok is false if there is none, because the keeper did not run to its end.
func DecodeReply(output []byte) (r Reply, ok bool) {
	at := bytes.LastIndex(output, []byte(head))
	if at < 0 {
		return r, false
	}
	line, _, whole := bytes.Cut(output[at+len(head):], []byte("\n"))
	if !whole {
		return r, false
	}
	unpacker := flate.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(bytes.TrimRight(line, "\r"))))
	framed, err := io.ReadAll(io.LimitReader(unpacker, MaxReply))
	if err != nil {
		return r, false
	}
	r.Data, err = unframe(framed, &r)
	return r, err == nil
}

// frame writes the length of a value's JSON, the JSON, and then data.
func frame(value any, data []byte) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	framed := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)+len(data)), uint32(len(text)))
	return append(append(framed, text...), data...), nil
}

func unframe(framed []byte, value any) (data []byte, err error) {
	if len(framed) < 4 {
		return nil, errors.New("too short")
	}
	size := int64(binary.BigEndian.Uint32(framed))
	if size > int64(len(framed)-4) {
		return nil, errors.New("too short")
	}
	return framed[4+size:], json.Unmarshal(framed[4:4+size], value)
}

// Package protocol is what a server and the keeper, its program in a box, say to each other.
//
// The keeper has two roles, and others with the arguments [First] and [Dial]. Called without arguments, it reads one [Request] from its standard input, writes one [Reply] and
// ends. For a command to launch, it starts itself again, and that process stays with the command: it starts it, records its
// output and how it ended, and takes requests about it from a socket beside the record.
//
// The formats of a record and of the socket are shared by all keepers in a box, which may be of different versions: a box
// may outlive several servers.
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

// The places of the keeper in a box. All are the box user's.
const (
	Root    = "/var/lib/arbe"
	Records = Root + "/records" // a directory for each launched command
	Inbox   = Root + "/in"      // pieces of files on their way in
)

// First is the argument with which the keeper is process 1 of a box, if the provider lets its program choose that.
const First = "first"

// With the argument Dial and a port, the keeper connects to that port of the box's loopback and passes its input and output on. It
// prints Connected first. If nothing listens, its exit code is NobodyListens.
const (
	Dial          = "dial"
	Connected     = "+"
	NobodyListens = 3
)

// Request is one request.
type Request struct {
	Op Op `json:"op"`
	// ID is the launched command that the request is about.
	ID string `json:"id,omitempty"`

	// For Launch: what runs, see sandbox.Command. With Wait, it also follows.
	Argv     []string          `json:"argv,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Dir      string            `json:"dir,omitempty"`
	Merged   bool              `json:"merged,omitempty"`
	Complete bool              `json:"complete,omitempty"`
	Input    bool              `json:"input,omitempty"`

	// Position is where Follow and Fetch begin, up to where Release releases, the offset of the data of Input, and the new
	// limit for Extend.
	Position int64 `json:"position,omitempty"`
	// Release makes Follow release what is before Position.
	Release bool `json:"release,omitempty"`
	// Most limits the data in the reply, in bytes.
	Most int `json:"most,omitempty"`
	// Wait is how long the reply may wait for something to say.
	Wait time.Duration `json:"wait,omitempty"`
	// Patience is how long End leaves the command to end by itself.
	Patience time.Duration `json:"patience,omitempty"`
	// Last says that the input ends after this data.
	Last bool `json:"last,omitempty"`

	// Path is a file, and Mode its new mode.
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	// Parcel is the name in the inbox of what Place places, in pieces that are numbered from 0.
	Parcel string `json:"parcel,omitempty"`
	Pieces int    `json:"pieces,omitempty"`
	// Identity is the file that an earlier Fetch has read.
	Identity string `json:"identity,omitempty"`

	// DataIn is the file in the inbox that holds the data of the request; see Data.
	DataIn string `json:"data_in,omitempty"`
	// Data is the data of the request. It comes after the request, or in a file if it is large.
	Data []byte `json:"-"`
}

// Op is what a request asks for.
type Op string

// The operations. Repeating one is harmless, because an answer may be lost.
const (
	Launch    Op = "launch"
	Follow    Op = "follow"
	Input     Op = "input"
	Release   Op = "release"
	Extend    Op = "extend"
	Interrupt Op = "interrupt"
	End       Op = "end"
	Forget    Op = "forget"
	Place     Op = "place" // put a file that has arrived in the inbox where it belongs
	Drop      Op = "drop"  // give up a file in the inbox
	Fetch     Op = "fetch" // read a part of a file
)

// Reply answers a request.
type Reply struct {
	// Reason says why the request failed; empty if it succeeded.
	Reason Reason `json:"reason,omitempty"`
	// Errno is the system's error, if that is why, and Detail its words.
	Errno  int    `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`

	// Records are what Follow found. Their data is that of the reply, one after another.
	Records []Record `json:"records,omitempty"`
	// Accepted is the position up to which the input was taken.
	Accepted int64 `json:"accepted,omitempty"`
	// Pending: the request is not finished, so it must be repeated.
	Pending bool `json:"pending,omitempty"`
	// Identity is the file that Fetch has read, and Last says that it has read its end.
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
	NoInput     Reason = "input"     // the command reads no input any more
	FileError   Reason = "file"
	NotRegular  Reason = "regular" // the file is no regular file
	Changed     Reason = "changed" // the file is another one than before
	Failed      Reason = "failed"
)

// Record is a piece of the record of a command; see sandbox.Record. Positions are numbers of bytes of output, plus one:
// position 1 is after the start.
type Record struct {
	Kind        string `json:"kind"`
	Next        int64  `json:"next"`
	Nanoseconds int64  `json:"time"`
	Size        int    `json:"size,omitempty"` // of its data
	ExitCode    int    `json:"exit_code,omitempty"`
	OutOfMemory bool   `json:"oom,omitempty"`
	BoxEnded    bool   `json:"box_ended,omitempty"`
	Dropped     int64  `json:"dropped,omitempty"`
}

// head begins the line with a reply, because a box's programs may print something before it.
const head = "arbe-keeper:"

// EncodeRequest encodes a request.
func EncodeRequest(r Request) ([]byte, error) { return frame(r, r.Data) }

// DecodeRequest decodes a request.
func DecodeRequest(text []byte) (r Request, err error) {
	r.Data, err = unframe(text, &r)
	return r, err
}

// EncodeReply encodes a reply as a line of text, because not every provider passes on other output as it is. It is compressed,
// because most output is text.
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

// DecodeReply finds the reply in what a keeper has printed. ok is false if there is none, because the keeper did not run
// to its end.
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

// frame writes a value as JSON after its length, and then data.
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

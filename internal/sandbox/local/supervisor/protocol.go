// Package supervisor defines the protocol between the server and process 1 of a box, which starts the box's commands.
// The program itself is package pid1, below.
//
// The server listens on a SOCK_SEQPACKET socket and passes it to process 1 as its standard input, so that the box has
// no path to it and commands cannot reach it. Each connection has one purpose, which its first message names:
//
//	Hello    the server is running. Process 1 and the box end when no such connection has been open for
//	         the time in the last Hello.
//	Start    starts one command. Five files come with the message: the command's description (see
//	         [Command.Encode]; it may be longer than a message and may hold secrets, so it is a file in
//	         memory), its standard input, output and error, and its control socket. Process 1 answers
//	         Started with a pidfd, or Failed, and later Exited. If the connection closes before that, a
//	         command in the foreground is killed, and one in the background continues.
//	Release  gives the position up to which the record of a command was read. The record comes with it.
//	Extend   raises the size limit of the record of a Complete command. The record comes with it.
//	EndInput ends the input of a recorded command. The record comes with it.
//	Reopen   asks for the input of a recorded command that another server started. The record comes with it.
//	         Process 1 answers Reopened with the writing end, or Failed.
//
// A command begins as a stub: a copy of process 1 that enters its control groups and waits at its control socket until
// the server is ready. One byte releases it. If the socket is closed instead, the stub ends and nothing has run. A
// released stub writes [Ready] and becomes the command, which closes the socket, or writes a [Failure].
//
// The package imports only encoding/binary, because the program must stay small.
package supervisor

import "encoding/binary"

// Version is the version of the protocol. Process 1 drops connections with another version, because it would misread
// their messages. A server with another version restarts the box, which interrupts its commands: change it only if an
// older process 1 could not serve a newer server, and name it in the release notes.
const Version = 5

// The kinds of messages. A message is Version, its kind and its contents, in little-endian.
const (
	Hello    = 'H' // uint64: nanoseconds for which the box outlives the server
	Welcome  = 'W' // the answer to Hello
	Start    = 'S' // byte: Foreground, Background or Recorded; uint64: the size limit of the record; byte: the number of groups; byte: flags
	Release  = 'R' // uint64: the position in the record
	Extend   = 'L' // uint64: the size limit of the record
	EndInput = 'I'
	Reopen   = 'O'
	Reopened = 'Q' // with the writing end of the input
	Started  = 'P' // with a pidfd, because the server has other process ids than the box
	Failed   = 'F' // uint32: errno of the fork
	Exited   = 'X' // uint32: the wait status
)

// What happens to a command when its server is gone.
const (
	Foreground = iota
	Background
	// Recorded is Background with output that process 1 records. More files come with it: the record, opened for
	// appending; the reading ends of the command's standard output and, unless it is Merged, of its standard error,
	// both non-blocking; and with Input the writing end of its standard input.
	Recorded
)

// The flags of a recorded command.
const (
	// Merged: standard output and error are one pipe, so that the record keeps the order in which they are written. Two
	// pipes do not keep that order.
	Merged = 1 << iota
	// Complete: nothing of the record is dropped before it is released. Process 1 stops reading the command's outputs
	// when the record is longer than its limit and more than Window is not released. The command then waits. Extend
	// raises the limit.
	Complete
	// Input: process 1 holds the command's standard input open until EndInput. Otherwise a server that is killed would
	// end the input, and the command would take the first part for the whole.
	Input
)

// Files is the number of files that come with every Start. The files for recording and then the groups follow. The
// groups are the "tasks" files, opened for writing, of at most MaxGroups control groups that the stub enters itself.
// The kernel lets a thread move itself at once. Before it moves another one, it waits until no process is being created
// anywhere, which takes 5 to 15 milliseconds on a machine that has moved none recently.
const (
	Files     = 5
	MaxGroups = 4
)

// RecordFiles returns the number of further files that come with the Start of a recorded command.
func RecordFiles(flags byte) int {
	n := 3
	if flags&Merged != 0 {
		n--
	}
	if flags&Input != 0 {
		n++
	}
	return n
}

// A record is a file of entries. Each is written at once: its kind, the length of its content (uint32), the time
// (int64, nanoseconds since 1970) and the content. An incomplete entry does not count, because process 1 may have ended
// while it wrote.
//
// When a record is longer than its limit, the rest is kept as a moving window: after the limit there is an EntryMark
// every [MarkEvery] bytes, and everything from the first mark up to the [Marks]th mark from the end is released to the
// disk as a hole. For a Complete record, the hole ends at the last mark before the released position instead. A hole
// reads as zeros and ends where a mark begins. No entry begins with a zero. Process 1 makes holes under an exclusive
// lock of the open file (F_OFD_SETLK), and postpones that if it does not get the lock at once: a reader with a shared
// lock sees complete entries.
const (
	EntryHeader = 1 + 4 + 8
	// EntryStart is written by the server before the command runs: uint64 process id; uint64 its start in ticks,
	// because another process may get the id later; uint64 how often the box had run out of memory.
	EntryStart  = 's'
	EntryStdout = 'o' // with Merged, of both outputs
	EntryStderr = 'e'
	// EntryMark has the number of bytes of output before it, recorded or not (uint64). From it, a reader knows how many
	// are missing in a hole.
	EntryMark = 'm'
	// EntryExit follows everything that the command itself wrote: uint32 wait status; uint64 bytes of its output,
	// recorded or not. It is the last entry: later output of background processes is not recorded.
	EntryExit = 'x'

	MarkEvery = 1 << 20
	Marks     = 8
	// Window is the number of bytes by which a Complete record may be ahead of its reader.
	Window = Marks * MarkEvery
)

// PutHeader writes the header into the first EntryHeader bytes of an entry.
func PutHeader(entry []byte, kind byte, nanoseconds int64) {
	entry[0] = kind
	binary.LittleEndian.PutUint32(entry[1:], uint32(len(entry)-EntryHeader))
	binary.LittleEndian.PutUint64(entry[5:], uint64(nanoseconds))
}

// DecodeEntry decodes the entry at the beginning of text. size is 0 if it is incomplete.
func DecodeEntry(text []byte) (kind byte, nanoseconds int64, content []byte, size int) {
	if len(text) < EntryHeader {
		return 0, 0, nil, 0
	}
	size = EntryHeader + int(binary.LittleEndian.Uint32(text[1:]))
	if len(text) < size {
		return 0, 0, nil, 0
	}
	return text[0], int64(binary.LittleEndian.Uint64(text[5:])), text[EntryHeader:size], size
}

// MaxEntry limits an entry including its header.
const MaxEntry = EntryHeader + 64<<10

// MaxDescription limits a command's description, in bytes, because process 1 reads it into memory. It is more than the
// kernel accepts as arguments, so it refuses nothing that could run.
const MaxDescription = 8 << 20

// The messages of a stub on its control socket.
const (
	// Ready is written when the stub is about to become the command.
	Ready = 'r'
	// FailureSize is the length of a Failure.
	FailureSize = 8
)

// The steps of a stub that can fail.
const (
	StepGroups    = 1 + iota // entering control groups
	StepLimits               // setting resource limits
	StepUser                 // becoming the box's user
	StepLandlock             // entering a domain
	StepDirectory            // entering the directory
	StepProgram              // becoming the program
	StepTerminal             // taking the terminal
)

// Failure says which step of a stub failed, and with which error.
type Failure struct {
	Step  uint32
	Errno uint32
}

// DecodeFailure decodes a Failure that a stub wrote.
func DecodeFailure(text []byte) (Failure, bool) {
	if len(text) != FailureSize {
		return Failure{}, false
	}
	return Failure{Step: binary.LittleEndian.Uint32(text), Errno: binary.LittleEndian.Uint32(text[4:])}, true
}

// Command describes what a stub becomes.
type Command struct {
	Argv, Env []string
	// Paths are the files to try in order, as execvp does.
	Paths []string
	Dir   string
	// UID and GID are the user to become; 0 keeps that of process 1.
	UID, GID uint32
	Limits   []Limit
	// Own gives the command its own Landlock domain, so that no other command can read its memory and environment.
	// Otherwise it shares a domain with all commands that have none of their own.
	Own bool
	// Terminal: the standard input is a terminal, which becomes the controlling terminal of the command's session. The
	// other side of the terminal is both the output and the input of the recorded command.
	Terminal bool
	// Canary makes the stub sleep 100 milliseconds as the box's user and end with 0 instead of becoming a program. If
	// it ends otherwise, something in the box kills or stops its processes.
	Canary bool
}

// Limit is a resource limit, both soft and hard, because a command may raise a soft limit up to the hard one.
type Limit struct {
	Resource uint32
	Value    uint64
}

const (
	flagOwn = 1 << iota
	flagCanary
	flagTerminal
)

// Encode encodes the description for process 1: numbers, then strings that each end with NUL. The kernel expects this
// form, and a stub must not allocate memory to convert the strings.
func (c Command) Encode() []byte {
	var b []byte
	number := func(n int) { b = binary.LittleEndian.AppendUint32(b, uint32(n)) }
	flags := 0
	if c.Own {
		flags |= flagOwn
	}
	if c.Canary {
		flags |= flagCanary
	}
	if c.Terminal {
		flags |= flagTerminal
	}
	number(flags)
	number(int(c.UID))
	number(int(c.GID))
	number(len(c.Limits))
	number(len(c.Argv))
	number(len(c.Env))
	number(len(c.Paths))
	for _, l := range c.Limits {
		number(int(l.Resource))
		b = binary.LittleEndian.AppendUint64(b, l.Value)
	}
	for _, texts := range [][]string{{c.Dir}, c.Argv, c.Env, c.Paths} {
		for _, text := range texts {
			b = append(append(b, text...), 0)
		}
	}
	return b
}

// Decoded is a description whose strings stay where they were read, each with its NUL, so that clearing that memory
// leaves no copy of a secret.
type Decoded struct {
	Own, Canary, Terminal bool
	UID, GID              uint32
	Limits                []Limit
	Dir                   []byte
	Argv, Env, Paths      [][]byte
}

// Decode decodes a description. ok is false if it is malformed.
func Decode(text []byte) (d Decoded, ok bool) {
	const numbers = 7
	if len(text) < 4*numbers {
		return d, false
	}
	var n [numbers]uint32
	for i := range n {
		n[i] = binary.LittleEndian.Uint32(text[4*i:])
	}
	text = text[4*numbers:]
	d.Own, d.Canary, d.Terminal, d.UID, d.GID = n[0]&flagOwn != 0, n[0]&flagCanary != 0, n[0]&flagTerminal != 0, n[1], n[2]
	for range n[3] {
		if len(text) < 12 {
			return d, false
		}
		d.Limits = append(d.Limits, Limit{binary.LittleEndian.Uint32(text), binary.LittleEndian.Uint64(text[4:])})
		text = text[12:]
	}
	next := func() ([]byte, bool) {
		for i, c := range text {
			if c == 0 {
				s := text[:i+1]
				text = text[i+1:]
				return s, true
			}
		}
		return nil, false
	}
	if d.Dir, ok = next(); !ok {
		return d, false
	}
	for i, list := range []*[][]byte{&d.Argv, &d.Env, &d.Paths} {
		for range n[4+i] {
			s, ok := next()
			if !ok {
				return d, false
			}
			*list = append(*list, s)
		}
	}
	return d, len(text) == 0
}

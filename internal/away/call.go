package away

import (
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

const (
	// longestWait is how long a call may wait for output or for an end.
	longestWait = 10 * time.Second
	// mostPiece limits the bytes of one call or reply.
	mostPiece = 256 << 10
)

// op is the operation of a call.
type op string

const (
	opFind   op = "find" // whether the server reaches a machine
	opAsleep op = "asleep"
	// These begin a session.
	opExec     op = "exec"
	opDownload op = "download"
	opDial     op = "dial"
	opWake     op = "wake"
	// These are about a session.
	opPull op = "pull"
	opPush op = "push"
	opEnd  op = "end"
)

// call is a call to the server of a machine.
type call struct {
	Op      op
	Machine string `json:",omitempty"`
	Agent   string `json:",omitempty"`
	Sandbox string `json:",omitempty"`
	Thread  string `json:",omitempty"`

	// What to run, which file to read, or which port to connect to.
	Argv    []string          `json:",omitempty"`
	Dir     string            `json:",omitempty"`
	Env     map[string]string `json:",omitempty"`
	Merged  bool              `json:",omitempty"`
	Timeout time.Duration     `json:",omitempty"`
	Path    string            `json:",omitempty"`
	Port    uint16            `json:",omitempty"`

	// Session is chosen by the caller, so that beginning it can be repeated.
	Session string `json:",omitempty"`
	// At are the positions up to which the caller has each output; for a push, At[0] is the position of Data.
	At   [2]int64
	Data []byte `json:",omitempty"`
	Last bool   `json:",omitempty"`
	Wait time.Duration
}

// reply is the reply to a call.
type reply struct {
	Here   bool `json:",omitempty"`
	Asleep bool `json:",omitempty"`
	// Out are the next bytes of each output. Done means that they are the last ones.
	Out  [2][]byte
	Done bool `json:",omitempty"`
	// Accepted is the position up to which pushed bytes were accepted.
	Accepted int64           `json:",omitempty"`
	Result   *sandbox.Result `json:",omitempty"`
	Woken    *sandbox.Woken  `json:",omitempty"`
}

var errLost = fault.New(fault.Unavailable, "the connection to the sandbox was lost", "try again")

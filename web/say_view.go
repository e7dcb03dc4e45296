package web

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// outgoingMessage is a message sent with a form. Reply is the id of the entry, if any, that it replies to. Files are its
// files.
type outgoingMessage struct {
	Thread, ID, Text, Reply string
	Files                   []outgoingFile
	// Queue lets it wait until the thread's coding agent has done its current work.
	Queue bool
}

// outgoingFile is an artifact that belongs to a message.
type outgoingFile struct{ Artifact, Name string }

// fileNames returns the names of files.
func fileNames(files []outgoingFile) string {
	var names []string
	for _, f := range files {
		names = append(names, clip(f.Name, maxWord))
	}
	return strings.Join(names, ", ")
}

// sending is the state of a message in the outbox: refused with a Failure, or in the log at position Seq. The zero value
// means that the server has not answered yet.
type sending struct {
	Seq     int64
	Failure *fault.Error
}

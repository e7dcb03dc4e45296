package command

import "errors"

const (
	// exitNotBegun is the exit code of a command whose server was killed just before the command began. Other commands may
	// return it too.
	exitNotBegun = 125
	// exitTimedOut is the exit code of a command that reached its time limit.
	exitTimedOut = 124
)

var (
	// errHandedOver reports that a command is running or waiting, and that the next server continues it.
	errHandedOver = errors.New("the command is left to the next server")
	// errCutOff reports that a command was ended with its server or its sandbox.
	errCutOff = errors.New("the command was interrupted")
	// errSandboxEnded reports that the sandbox of a command ended while it ran. The server that started the command reports
	// it as killed.
	errSandboxEnded = errors.New("the sandbox ended while the command was running")
	// errOutcomeUnknown reports that a command may have begun, but that nobody knows what became of it.
	errOutcomeUnknown = errors.New("the outcome of the command is unknown")
	// errTimedOut reports that a command reached its time limit.
	errTimedOut = errors.New("timed out")
)

// cancelledError reports that a command was cancelled, and the last signal that it was sent.
type cancelledError struct{ sent Signal }

func (*cancelledError) Error() string { return "the command was cancelled" }

const (
	// interrupted is the error of a command that was ended with its server.
	interrupted = "the server stopped while the command was running; its effects so far remain, so run it again only if you need the rest"
	// inputCut is the error of a command whose input ended early. The end of the input would have told it that the
	// input was complete.
	inputCut = "the command's input ended early because its writer or its server was gone, so the command was ended; run it again"
	// hungUp is the error of a command that ended because nobody was connected to its terminal.
	hungUp = "nobody was connected to the command's terminal for a minute, so the command was ended"
	// outcomeUnknown is the error of a command whose end is unknown.
	outcomeUnknown = "nobody knows whether the command began, or how it ended; check its effects before you run it again"
)

package arbev1

// Names that arbe puts on the wire besides the messages. Each is defined only here, because servers, clients and the web app
// must agree on them.
const (
	// NextHeader is the metadata of an error that says what the caller can do about it.
	NextHeader = "Arbe-Next"
	// ReasonHeader is the metadata of an error that names its reason ([ErrorInfo]).
	ReasonHeader = "Arbe-Reason"
	// ReferenceHeader is the metadata of an internal error by which the operator finds it in the log.
	ReferenceHeader = "Arbe-Reference"
	// RequestHeader is the header of every answer with the id of its request, which the operator finds in the log.
	RequestHeader = "X-Request-Id"
	// CLIAgent begins the User-Agent of the command line of arbe.
	CLIAgent = "arbe-cli"
	// PagesHeader marks the requests of the web app, which have the User-Agent of the reader's browser.
	PagesHeader = "Arbe-Pages"
	// SessionCookie carries a browser's session. Over https it has the prefix "__Host-", so that no other host can set it.
	SessionCookie = "arbe_session"
)

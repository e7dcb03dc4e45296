package fault

// Domain says whose reasons they are, as in google.rpc.ErrorInfo (AIP-193).
const Domain = "arbe.dev"

// Reason names what went wrong more exactly than a [Code], for programs that handle it. A reason keeps its name and its
// meaning; new ones may be added. If no program needs to distinguish an error, its reason is the name of its code, such
// as NOT_FOUND. The table in docs/errors.md lists all.
type Reason string

// The reasons that are not names of codes.
const (
	ThreadClosed   Reason = "THREAD_CLOSED"
	StreamClosed   Reason = "STREAM_CLOSED"
	IDTaken        Reason = "ID_TAKEN"
	NameTaken      Reason = "NAME_TAKEN"
	TokenExpired   Reason = "TOKEN_EXPIRED"
	TokenLimited   Reason = "TOKEN_LIMITED"
	OwnersOnly     Reason = "OWNERS_ONLY"
	LastOwner      Reason = "LAST_OWNER"
	LimitReached   Reason = "LIMIT_REACHED"
	TooLarge       Reason = "TOO_LARGE"
	SlowDown       Reason = "SLOW_DOWN"
	Busy           Reason = "BUSY"
	BudgetSpent    Reason = "BUDGET_SPENT"
	DiskFull       Reason = "DISK_FULL"
	NoModel        Reason = "NO_MODEL"
	NoModelKey     Reason = "NO_MODEL_KEY"
	SecretMissing  Reason = "SECRET_MISSING"
	ApprovalEnded  Reason = "APPROVAL_ENDED"
	OutputGone     Reason = "OUTPUT_GONE"
	RunEnded       Reason = "RUN_ENDED"
	NoCodingAgent  Reason = "NO_CODING_AGENT"
	TreeNotSaved   Reason = "TREE_NOT_SAVED"
	MessageTaken   Reason = "MESSAGE_TAKEN"
	Changed        Reason = "CHANGED"
	NoSandbox      Reason = "NO_SANDBOX"
	NobodyListens  Reason = "NOBODY_LISTENS"
	ServerStopping Reason = "SERVER_STOPPING"
	DatabaseDown   Reason = "DATABASE_DOWN"
	Expired        Reason = "EXPIRED"
)

// Reasons are the reasons that are not names of codes, each with the code that it comes with and what it means.
var Reasons = []struct {
	Reason  Reason
	Code    Code
	Meaning string
}{
	{ThreadClosed, Precondition, "The thread is closed. Reopen it to write or run something in it."},
	{StreamClosed, Precondition, "The stream is closed for good."},
	{IDTaken, Exists, "Something else has the id that the caller chose."},
	{NameTaken, Exists, "Something else has the name or handle, or one that looks like it."},
	{TokenExpired, Unauthenticated, "The token is no longer valid. Renew tokens before they expire, or ask for a new one."},
	{TokenLimited, Forbidden, "The credential is valid for one house, one thread or some operations, and not for this."},
	{OwnersOnly, Forbidden, "Only an owner of the house may do this."},
	{LastOwner, Precondition, "A house keeps one owner. Make another member an owner first."},
	{LimitReached, Exhausted, "No more of these may exist, run or wait at once. The message names the limit."},
	{TooLarge, Exhausted, "A value is too large. The message names the limit."},
	{SlowDown, Exhausted, "The program polls too often. Wait as long as the server said before the next poll."},
	{Busy, Unavailable, "The server can accept no more work now. Try again."},
	{BudgetSpent, Exhausted, "A budget of money or tokens is spent. The message says whose, and until when."},
	{DiskFull, Exhausted, "A disk of the server is full."},
	{NoModel, Precondition, "The house has no model, or has not chosen its default one."},
	{NoModelKey, Precondition, "The house has no key for the provider of the model."},
	{SecretMissing, Precondition, "The environment, or the account in which the sandbox is, needs a secret that the house does not have."},
	{ApprovalEnded, Precondition, "Somebody has already answered the question, or it no longer waits for an answer."},
	{OutputGone, OutOfRange, "This part of a command's output was not read in time. The log has what it keeps."},
	{RunEnded, Forbidden, "The run of this token is over, or a later one has begun. The runner must stop."},
	{NoCodingAgent, Precondition, "The bot or the thread has no coding agent, or this server does not know it."},
	{TreeNotSaved, Precondition, "The files of the sandbox cannot be saved, so it was not deleted. The message says why."},
	{MessageTaken, Precondition, "The message does not wait any more: the agent already has it, or it was cancelled."},
	{Changed, Aborted, "Somebody changed it after the version that the request names with its etag. Read it again, and repeat the change."},
	{NoSandbox, Precondition, "The thread has no sandbox that runs. Its next command builds or starts one."},
	{NobodyListens, Unavailable, "No program of the sandbox listens on this port."},
	{ServerStopping, Unavailable, "The server is stopping. Connect again; another server answers."},
	{DatabaseDown, Unavailable, "The server cannot reach its database. Try again."},
	{Expired, NotFound, "The retention of the house deleted it. The message says after how many days."},
}

package fault

// Domain is the domain of the reasons, as in google.rpc.ErrorInfo (AIP-193).
const Domain = "arbe.dev"

// Reason says more exactly than a [Code] what went wrong, for programs that handle it. A reason keeps its name and its
// meaning; new ones may be added. If no program needs to distinguish an error, its reason is the name of its code, such
// as NOT_FOUND. docs/errors.md lists all reasons.
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

// Reasons lists the reasons that are not names of codes, each with its code and its meaning.
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
	{TokenLimited, Forbidden, "The credential is valid only for another house, another thread or other operations."},
	{OwnersOnly, Forbidden, "Only an owner of the house may do this."},
	{LastOwner, Precondition, "A house needs at least one owner. Make another member an owner first."},
	{LimitReached, Exhausted, "Too many already exist, run or wait. The message names the limit."},
	{TooLarge, Exhausted, "A value is too large. The message names the limit."},
	{SlowDown, Exhausted, "The program polls too often. Wait as long as the server said before the next poll."},
	{Busy, Unavailable, "The server can accept no more work now. Try again."},
	{BudgetSpent, Exhausted, "A budget of money or tokens is spent. The message says whose, and until when."},
	{DiskFull, Exhausted, "A disk of the server is full."},
	{NoModel, Precondition, "The house has no model, or has not chosen its default one."},
	{NoModelKey, Precondition, "The house has no key for the provider of the model."},
	{SecretMissing, Precondition, "The environment, or the account of the sandbox, needs a secret that the house does not have."},
	{ApprovalEnded, Precondition, "Somebody has already answered the question, or it no longer waits for an answer."},
	{OutputGone, OutOfRange, "This part of a command's live output was not read in time, and is gone. The log has what it keeps of the output."},
	{RunEnded, Forbidden, "The run of this token is over, or a later one has begun. The runner must stop."},
	{NoCodingAgent, Precondition, "The bot or the thread has no coding agent, or this server does not know it."},
	{TreeNotSaved, Precondition, "The files of the sandbox cannot be saved, so it was not deleted. The message says why."},
	{MessageTaken, Precondition, "The message no longer waits: the agent already has it, or it was cancelled."},
	{Changed, Aborted, "Somebody changed the object after you read its etag. Read it again, and repeat the change."},
	{NoSandbox, Precondition, "The thread has no sandbox that runs. Its next command builds or starts one."},
	{NobodyListens, Unavailable, "No program in the sandbox listens on this port."},
	{ServerStopping, Unavailable, "The server is stopping. Connect again; another server answers."},
	{DatabaseDown, Unavailable, "The server cannot reach its database. Try again."},
	{Expired, NotFound, "The house's retention deleted it. The message says after how many days."},
}

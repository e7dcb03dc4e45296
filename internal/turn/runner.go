package turn

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"encoding/json"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/picture"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// endTimeout limits writing the end of a turn that was stopped, which must be written although its context ended.
	endTimeout = 20 * time.Second
	// compactRetries is how often a call that was too long for its model is repeated with a shorter transcript.
	compactRetries = 3
	// maxRepeats is how many steps in a row may call the same tools with the same arguments and get the same results; see
	// [run.loops].
	maxRepeats = 8
	// maxCalls is how many tools a step may call. Each call and each result is stored, and read again with each further
	// step.
	maxCalls = 128
	// maxAttempts is how often a step may be begun, whatever interrupted it. Waits for the model's provider do not
	// count.
	maxAttempts = 50
	// maxDeaths is how many servers may die while they work on a step. The model's answer may be the cause, so the last of
	// them works on only one such turn at a time.
	maxDeaths = 3
	// reserve is the share of a context window that is left free, because sizes are estimates and the answer needs room.
	reserve = 0.25
	// imageMemory limits the bytes of images in all requests in progress on a server. imageCopies is how often a
	// request holds each image: as a base64 text, as bytes, and twice in its body.
	imageMemory, imageCopies = 512 << 20, 5
)

// Bot has the settings of a bot that its turns need.
type Bot struct {
	Handle, Name, Instructions string
	// Model is the ref of its model; empty for the house's default.
	Model string
	// Think is how hard its model thinks, unless a question says otherwise.
	Think entry.Effort
	// Tools are the names of the tools that it may use, and Ask those of them that need a person's approval.
	Tools, Ask []string
	Limits     Limits
	// Listens holds, by the id of an activation policy, the topics on which a listening bot speaks up. Without topics
	// it speaks up whenever that helps.
	Listens map[string]string
}

// Config configures a [Runner]. The fields up to Park are required; without Bot, all turns fail.
type Config struct {
	DB     *db.DB
	Log    *stream.Log
	Logger *slog.Logger
	Model  *model.Client
	// Tools returns all tools that a bot of the scope's house could have; its settings name those that it may use. It is
	// called before each step, so a tool that it no longer returns does not run.
	Tools func(ctx context.Context, scope db.Scope, bot string) ([]Tool, error)
	// Bot returns the settings of a bot of the scope's house, or a [fault.NotFound].
	Bot func(ctx context.Context, scope db.Scope, id string) (Bot, error)
	// Endpoint returns the endpoint of a model, and the model's id there. ref is a bot's model; empty for the house's
	// default. If there is none, the error says how to set one.
	Endpoint func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error)
	// Fallbacks returns the refs of the models that bots ask, in this order, while the provider of their own model does
	// not answer. Defaults to nil: there are none.
	Fallbacks func(ctx context.Context, scope db.Scope) ([]string, error)
	// Person returns an agent, or a [fault.NotFound].
	Person func(ctx context.Context, scope db.Scope, id string) (Person, error)
	// House and Setting describe the scope's house and one of its threads to bots. Default to nil: nothing.
	House   func(ctx context.Context, scope db.Scope) (House, error)
	Setting func(ctx context.Context, scope db.Scope, thread string) (Setting, error)
	// Queue queues a turn when tx commits.
	Queue func(ctx context.Context, tx pgx.Tx, t Turn) error
	// Park makes a turn wait until it is [Turn].Due or somebody answers, once tx commits.
	Park func(ctx context.Context, tx pgx.Tx, t Turn) error
	// Waits say how turns wait for the providers of their models.
	Waits Waits
	// Roots limit what follows from one entry of a person. Budget limits the cost of the installation's models.
	Roots  RootLimits
	Budget Budget
	// Pace waits until a server may check the next n bytes of a model's response in a turn of a house; see [model.Request].
	// Defaults to nil: nothing waits.
	Pace func(ctx context.Context, house string, n int) (end func())
	// Files reads the files that chats name. Defaults to nil: models read only their names.
	Files Files
	// Observe is called when a turn has ended, with the time since it was requested. It must be quick. Defaults to nil.
	Observe func(outcome Status, took time.Duration)
}

// Runner runs turns. It is safe for concurrent use.
type Runner struct {
	Config
	// noSmall has the servers of models that refused their provider's small model.
	noSmall sync.Map
	// blind has the models, with their servers, that are not in the catalog and refused images.
	blind sync.Map
	// lastTry is held by a turn that may kill its last server.
	lastTry chan struct{}
	// images limits the memory for images of requests in progress.
	images *semaphore.Weighted
}

// NewRunner returns a Runner.
func NewRunner(c Config) *Runner {
	return &Runner{Config: c, lastTry: make(chan struct{}, 1), images: semaphore.NewWeighted(imageMemory)}
}

// run is the work on one turn on this server.
type run struct {
	*Runner
	turn  Turn
	log   *stream.Log
	db    *db.DB
	ref   stream.Ref
	model *model.Client

	bot   Bot
	tools []Tool
	// surroundings are the turn's surroundings; nil until they are known.
	surroundings *surroundings
	// instructed reports that the model has, or was just given, the instructions of the workspace.
	instructed atomic.Bool
	// called are the tool calls that this server has begun, by tool.
	callsMu  sync.Mutex
	called   map[string]map[string]bool
	endpoint model.Endpoint
	modelID  string
	window   int64
	// largest is the largest context that the model is known to accept, if that is less than the catalog says.
	largest int64
	// redactor removes the key of the endpoint, which is key.
	redactor *secret.Redactor
	key      string

	transcript transcript
	used       query.TurnUsedRow
	reported   map[string]bool
	// last is the last answer that this server tried to write, and heard is when the model's last answer ended.
	last  *model.Answer
	heard time.Time
	// done are the turn's steps by number, including those that a summary has replaced in the transcript.
	done map[int]doneStep
	// calls counts the model calls on this server, whose ids must differ.
	calls int
	// fitted reports that the transcript was shortened to the size at which a turn begins.
	fitted bool
}

// ErrOvertaken reports that another server has begun the turn again, so this one may no longer write for it.
var ErrOvertaken = errors.New("another server works on the turn")

// errEnded reports that someone else has ended the turn.
var errEnded = errors.New("the turn has ended")

// text returns the text of an answer.
func (r *run) text(answer model.Answer) string {
	return strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(r.redactor.String(answer.Message.Text()), "\uFFFD")))
}

// storable reports whether an entry can hold an answer.
func (r *run) storable(answer model.Answer) bool {
	return len(entry.NewDraft("", r.turn.Bot, answer.Message).Payload) <= entry.MaxPayload
}

// appendTx appends an entry, whose id must be new.
func (r *run) appendTx(ctx context.Context, tx pgx.Tx, d entry.Draft) error {
	entries, err := r.log.AppendTx(ctx, tx, r.ref, d)
	if err == nil && !bytes.Equal(entries[0].Payload, d.Payload) {
		err = ErrOvertaken
	}
	return err
}

// count records the usage of a call whose answer is discarded.
func (r *run) count(ctx context.Context, id string, answer model.Answer) error {
	if answer.Usage.Total() == 0 {
		return nil
	}
	return r.db.In(ctx, r.scope(), func(tx pgx.Tx) error { return r.countTx(ctx, tx, id, answer) })
}

func (r *run) countTx(ctx context.Context, tx pgx.Tx, id string, answer model.Answer) error {
	u := answer.Usage
	return queries.InsertModelCall(ctx, tx, query.InsertModelCallParams{
		HouseID: r.turn.House, ThreadID: r.turn.Thread, TurnID: r.turn.ID, ID: id, AgentID: r.turn.Bot, Model: r.endpoint.Name + "/" + r.modelID,
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
		CostMicros: answer.Cost.Micros(), CostKnown: answer.CostKnown, Estimated: answer.Estimated, ChargedMicros: r.Budget.Charged(r.endpoint, u, answer.Cost, answer.CostKnown), Own: !r.endpoint.Shared,
	})
}

// countLost records the usage of a call whose answer this attempt cannot write.
func (r *run) countLost(ctx context.Context, answer model.Answer) error {
	return r.count(ctx, r.turn.stepID(r.turn.Steps+1)+".lost"+strconv.Itoa(r.turn.Attempts), answer)
}

// printable returns -1 for control characters, which nobody can read. Of an escape sequence, only the letters remain,
// which are harmless without the escape.
func printable(c rune) rune {
	if c < ' ' && c != '\n' && c != '\t' && c != '\x1b' || c == 0x7f {
		return -1
	}
	return c
}

// House is a house as a bot sees it in its turns.
type House struct {
	Name string
	// Members are the first members, in a stable order. More reports that there are others.
	Members []Member
	More    bool
}

// Member is a person or a bot of a house.
type Member struct {
	Person
	// Handle is a bot's handle, without the @; empty for a person.
	Handle string
}

// MaxMembers is how many members of a house a bot knows by name.
const MaxMembers = 50

// Setting is the thread of a turn, and where its commands run.
type Setting struct {
	// Thread is the thread's name.
	Thread string
	// Environment is nil if the thread has no environment, so that commands cannot run.
	Environment *Environment
	// Model and Think replace those of the bot; empty if the thread does not set them.
	Model string
	Think entry.Effort
}

// Environment describes the sandbox of a thread, whether or not it has been built.
type Environment struct {
	Name string
	// Image is the root file system; empty for the driver's default. Repo is the repository that was cloned into
	// Folder, at Ref.
	Image, Repo, Ref string
	Folder           string
	// Offline reports that the sandbox reaches no network. Otherwise Reaches says in words what it reaches.
	Offline bool
	Reaches string
	// CommandTime is the time limit of a command.
	CommandTime time.Duration
	// Secrets are the names of the environment variables that hold secrets.
	Secrets []string
	// SecretFiles are the names of the environment variables that hold the paths of files with secrets.
	SecretFiles []string
}

// surroundings describe the house, the thread and the sandbox of a turn.
type surroundings struct {
	House
	Setting
}

// Files reads the contents of a house's artifacts. It is safe for concurrent use.
type Files interface {
	// Image returns an artifact as an image that models accept, the same each time. Errors: those of [picture.Fit], and
	// a [fault.NotFound] for one that was deleted.
	Image(ctx context.Context, scope db.Scope, artifact string) (picture.Image, error)
	// Text returns the first bytes of an artifact, at most so many.
	Text(ctx context.Context, scope db.Scope, artifact string, most int64) (string, error)
}

// sight says what a model can see. With the zero sight, it sees only the names of files.
type sight struct {
	// images is how many images a request may have; 0 if the model does not see.
	images int
	// reads reports that the bot can read artifacts with its tools, and runs that it can run commands.
	reads, runs bool
}

// memory replaces the beginning of a thread for bots. The zero memory replaces nothing.
type memory struct {
	// version is the version of the thread's latest row; 0 if it has none.
	version int
	// begins is the position of the first entry that is read unchanged. 0 means the first entry.
	begins int64
	// summary replaces the entries before that, except those in unread. model wrote it, for the bot with the id by.
	summary, model, by string
	unread             []span
}

// span is a run of consecutive entries.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Since and Until are the times of the first and the last of them; zero if unknown.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// doneStep is the part of a step that remains after a summary has replaced it.
type doneStep struct {
	// signature is the same for steps with the same calls and results, ignoring times; see [run.outcome].
	signature string
	commands  int
}

// Tool is something that a bot can do.
type Tool struct {
	// Name identifies the tool for the model and in the bot's settings; Description and Schema tell the model how to call
	// it.
	model.Tool
	// Behalf tells people, in a sentence, with whose rights and in whose name it acts.
	Behalf string
	// Lists reports that it shows other people's texts, so that its result may differ although the bot makes no progress.
	Lists bool
	// Sandbox reports that it uses the thread's sandbox.
	Sandbox bool
	// Most is how often a turn may call it on one server. Defaults to 0: no limit.
	Most int
	// Run runs the tool. The model reads its error and decides what to do. Run must return soon after ctx ends. If its
	// server is killed, another one repeats it, so it must have no effect, or find its earlier effect by [Call.ID].
	Run func(ctx context.Context, c Call) (Result, error)
}

// Result is the result of a tool call.
type Result struct {
	// Text is the text for the model.
	Text string
	// Failed reports a failure that Text explains, such as a command with an exit code other than 0.
	Failed bool
	// Details are the part of the result for people; nil for none.
	Details *entry.PiDetails
	// Images are also shown to a model that accepts images: blocks that name artifacts.
	Images []entry.PiBlock
	// Instructions are the workspace's instructions, if [Call.Uninstructed] asks for them.
	Instructions string
}

// Call is one call of a tool.
type Call struct {
	// Scope is the house, and the bot in whose name the tool acts.
	Scope db.Scope
	// Thread is the thread of the turn.
	Thread, Turn string
	// ID is the id of the entry that will hold the call's result. It is the same when the call is repeated, so effects
	// with ids derived from it can be repeated harmlessly.
	ID string
	// Arguments fit the tool's schema.
	Arguments json.RawMessage
	// Uninstructed reports that no call of the turn has returned the instructions of the workspace.
	Uninstructed bool
}

// ErrTimeUp is the cause with which the context of a tool ends when its turn has reached its time limit.
var ErrTimeUp = errors.New("the turn has taken as long as it may")

// errRemoved ends the turns of a bot that is no longer in the house, and reasonRemoved is its word.
var errRemoved = fault.New(fault.Precondition, "the bot was removed", "ask another one")

const reasonRemoved = "bot_removed"

// reload reads the turn's row again.
func (r *run) reload(ctx context.Context) error {
	var t Turn
	err := r.db.In(ctx, r.scope(), func(tx pgx.Tx) (err error) {
		t, err = GetTx(ctx, tx, r.turn.ID)
		return err
	})
	switch {
	case err != nil:
		return err
	case !t.Status.Active():
		return errEnded
	case t.Steps != r.turn.Steps || t.Attempts != r.turn.Attempts:
		return ErrOvertaken
	}
	r.turn = t
	return nil
}

// writeStep writes an answer as a step, and counts it.
func (r *run) writeStep(ctx context.Context, tx pgx.Tx, answer model.Answer) error {
	id := r.turn.stepID(r.turn.Steps + 1)
	if err := r.countTx(ctx, tx, id, answer); err != nil {
		return err
	}
	return r.appendTx(ctx, tx, entry.NewDraft(id, r.turn.Bot, answer.Message))
}

// transcript is the part of a thread that a bot reads: the memory of its beginning, and the entries after that.
type transcript struct {
	bot, turn string
	memory    memory
	// entries are in the order of the log. The first lead entries are older ones that the turn answers, at the
	// positions in asked; the others are consecutive up to the end. reached reports that they begin where the memory
	// ends.
	entries []entry.Entry
	lead    int
	asked   map[int64]bool
	reached bool
	// reads reports whether the bot can read other entries with its tools.
	reads bool
	// tail is the position of the last entry that was read.
	tail int64
	// shortened is the position up to which long results of tools are shortened; 0 means none. It only grows.
	shortened int64
	// people are the authors by their ids.
	people map[string]Person
	// states holds the edits and deletions of messages.
	states entrystate.States
	// sight says what the model can see.
	sight sight
}

// Person is an agent as others see it.
type Person struct {
	Name string
	Bot  bool
}

// call is a tool call of a step.
type call struct {
	step, n int
	entry.PiBlock
}

// scope returns the scope of the turn's house and bot.
func (r *run) scope() db.Scope { return db.Scope{House: r.turn.House, Agent: r.turn.Bot} }

// budget returns how many tokens a request may have.
func (r *run) budget() int64 {
	return int64(float64(r.window) * (1 - reserve))
}

// most is roughly how many tokens of the thread a question begins with. A longer transcript is cut to half of that, so
// that many questions then begin alike.
func (r *run) most() int64 { return min(mostRead, r.budget()/2) }

// mostRead is [run.most] for a model with a large window. It is limited, because each step pays for reading so much.
const mostRead = 40_000

// fixable reports whether people can fix an error, in contrast to an error of the database.
func fixable(err error) bool {
	if _, isModel := errors.AsType[*model.Error](err); isModel {
		return true
	}
	code := fault.CodeOf(err)
	return code != fault.Unavailable && code != fault.Internal
}

// server names a house's access to a server of models.
type server struct{ house, name, url string }

func (r *run) server() server { return server{r.turn.House, r.endpoint.Name, r.endpoint.BaseURL} }

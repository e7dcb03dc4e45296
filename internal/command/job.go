package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/stream"
)

// Kind is the kind of the jobs of commands.
const Kind = "run_command"

// jobArgs are the arguments of a job that runs a command entry. The queue never retries a command, because a command may
// have side effects and must not run twice. A command that is requested again with the same id is the same job.
type jobArgs struct {
	House   string `json:"house"`
	Thread  string `json:"thread"`
	Stream  string `json:"stream"`
	Command string `json:"command"` // the entry's id
}

// Kind is the job's kind.
func (jobArgs) Kind() string { return Kind }

func (a jobArgs) log() stream.Ref { return stream.Ref{House: a.House, Name: a.Stream} }

// launchID returns the name of a command in its sandbox. It is a hash, because an entry's id may be longer than a
// launcher's id, and may have other characters. The stream is a part of it, because threads can share a sandbox.
func (a jobArgs) launchID() string {
	sum := sha256.Sum256([]byte(a.Stream + "\x00" + a.Command))
	return hex.EncodeToString(sum[:16])
}

// note is this package's data on a command's job.
type note struct {
	// WaitReported means that an entry in the command's thread says what it waits for.
	WaitReported bool `json:"wait_reported,omitempty"`
	// Begun is where the command was begun, or may have been; nil if it was not.
	Begun *begun `json:"begun,omitempty"`
	// InputEnded means that the command got all of its input. Otherwise the next server ends the command, because it cannot
	// know which part of the input was passed on.
	InputEnded bool `json:"input_ended,omitempty"`
	// Cancel is its cancellation, if any.
	Cancel *cancellation `json:"cancel,omitempty"`
}

// begun records where a command was begun.
type begun struct {
	Sandbox string `json:"sandbox"`
	// Launched means that the command outlives the server that began it, so the next one can follow it. Otherwise it ended
	// with its server.
	Launched bool `json:"launched,omitempty"`
	// Missing are the files that it did not find; see [entry.CommandResult.MissingFiles].
	Missing []string `json:"missing,omitempty"`
	// Secrets are the names and revisions of the secrets that it receives.
	Secrets map[string]int64 `json:"secrets,omitempty"`
	// SecretFiles maps the names of secrets that it receives as files to those files.
	SecretFiles map[string]string `json:"secret_files,omitempty"`
}

// cancellation is the cancellation of a command, as its job records it.
type cancellation struct {
	// By is the agent who requested it first.
	By string `json:"by,omitempty"`
	// Signal is the strongest requested signal.
	Signal Signal `json:"signal,omitempty"`
}

// NotedOn returns the note that jobs have if their commands were begun in a sandbox; see [jobs.Jobs.UnbindTx].
func NotedOn(sandbox string) any { return note{Begun: &begun{Sandbox: sandbox}} }

// lockTx locks the commands of a house until tx ends, so that commands that others queue meanwhile are counted. A
// transaction that writes both a job and its thread's log must take this lock first, to avoid deadlocks.
func lockTx(ctx context.Context, tx pgx.Tx, house string) error {
	_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('arbe.commands'), hashtext($1))", house)
	return err
}

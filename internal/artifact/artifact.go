// Package artifact stores what outlives the sandbox that it comes from: files, output, screenshots, and references to
// things elsewhere, such as commits and links.
//
// An artifact is a record (this file). Most have bytes, which are in a blob store (package blob) under a key of their
// own: upload.go writes them, content.go reads them, and collect.go deletes those that nothing refers to.
//
// The rule to remember: the row of a blob is created before its bytes and deleted before them, and no key is used
// twice. Otherwise there could be bytes that no row leads to, which would never be deleted, or a deletion could hit
// bytes in use.
package artifact

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The default limits of artifacts' bytes.
const (
	// DefaultMaxSize is 100 MiB.
	DefaultMaxSize = 100 << 20
	// DefaultQuota is 10 GiB, and DefaultPersonQuota 30 GiB.
	DefaultQuota, DefaultPersonQuota = 10 << 30, 30 << 30
)

// Config configures [New].
type Config struct {
	DB    *db.DB
	Blobs blob.Store
	// MaxSize limits the bytes of one artifact. Defaults to [DefaultMaxSize].
	MaxSize int64
	// Quota limits the bytes of all artifacts of a house. Content that several artifacts share counts once, because it
	// is stored once. Defaults to [DefaultQuota].
	Quota int64
	// PersonQuota limits the bytes of all artifacts of the houses that belong to one person, counted likewise in each house.
	// Defaults to [DefaultPersonQuota].
	PersonQuota int64
	Logger      *slog.Logger
}

// Artifacts manages the artifacts of all houses. It is safe for concurrent use.
type Artifacts struct {
	Config
	q *query.Queries
}

// New returns an Artifacts for a database and a blob store.
func New(c Config) *Artifacts {
	if c.MaxSize == 0 {
		c.MaxSize = DefaultMaxSize
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.PersonQuota == 0 {
		c.PersonQuota = DefaultPersonQuota
	}
	return &Artifacts{c, query.New()}
}

// The kinds that arbe itself creates or knows. Callers may use others.
const (
	// File is the default kind of a draft.
	File = "file"
	// Output is the output of a command whose result does not hold all of it.
	Output = "output"
)

// Artifact is one artifact.
type Artifact struct {
	ID, House string
	// Kind is the kind of artifact: "file", "output", "url", "commit", …
	Kind string
	// Label is its name for people; for a file, the file name.
	Label string
	// ExternalID is its id elsewhere: an entry's id, a pull request's URL, a commit.
	ExternalID string
	// MIMEType is the type of the bytes as its creator declared it. It must not be trusted, because it is not checked.
	MIMEType string
	// ByteRef says where its bytes are: "sha256:" and their hash if arbe stores them.
	ByteRef string
	// HasBytes reports that arbe stores its bytes. Size is their number.
	HasBytes bool
	Size     int64
	// Author is the agent who created it; empty for arbe itself.
	Author string
	// Thread is the thread that it comes from; empty for none, or if the thread was deleted.
	Thread string
	// Run is the run that it comes from, and Resource what it is about.
	Run, Resource string
	// Metadata is a JSON object.
	Metadata  json.RawMessage
	CreatedAt time.Time

	blob string
}

// Get returns an artifact, or a [fault.NotFound].
func (a *Artifacts) Get(ctx context.Context, scope db.Scope, id string) (got Artifact, err error) {
	err = a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		got, err = a.getTx(ctx, tx, id)
		return err
	})
	return got, err
}

func (a *Artifacts) getTx(ctx context.Context, tx pgx.Tx, id string) (Artifact, error) {
	row, err := a.q.GetArtifact(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Artifact{}, fault.New(fault.NotFound, "there is no such artifact", "list the artifacts with: arbe artifact list")
	}
	return fromRow(row.Artifact, row.Sha256, row.Size), err
}

// List returns up to limit artifacts of the scope's house before a cursor, newest first. A thread limits them to that
// thread. match limits them to those with this label, or whose ID begins with match if it has at least four characters.
func (a *Artifacts) List(ctx context.Context, scope db.Scope, thread, match string, before db.Cursor, limit int) (list []Artifact, err error) {
	err = a.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if match != "" {
			rows, err := a.q.MatchArtifacts(ctx, tx, query.MatchArtifactsParams{
				HouseID: scope.House, ThreadID: thread, Match: match, BeforeTime: before.Time, BeforeID: before.ID, MaxRows: int32(limit),
			})
			for _, row := range rows {
				list = append(list, fromRow(row.Artifact, row.Sha256, row.Size))
			}
			return err
		}
		rows, err := a.q.ListArtifacts(ctx, tx, query.ListArtifactsParams{
			HouseID: scope.House, ThreadID: thread, BeforeTime: before.Time, BeforeID: before.ID, MaxRows: int32(limit),
		})
		for _, row := range rows {
			list = append(list, fromRow(row.Artifact, row.Sha256, row.Size))
		}
		return err
	})
	return list, err
}

// Delete deletes an artifact. Its bytes are deleted soon after, unless another artifact has the same. Deleting one that
// does not exist succeeds, because the call may be a retry.
func (a *Artifacts) Delete(ctx context.Context, scope db.Scope, id string) error {
	return a.DB.In(ctx, scope, func(tx pgx.Tx) error { return a.DeleteTx(ctx, tx, id) })
}

// DeleteTx is [Artifacts.Delete] in the caller's transaction.
func (a *Artifacts) DeleteTx(ctx context.Context, tx pgx.Tx, id string) error {
	return a.q.DeleteArtifact(ctx, tx, id)
}

func fromRow(r query.Artifact, sha256 []byte, size int64) Artifact {
	a := Artifact{
		ID: r.ID, House: r.HouseID, Kind: r.Kind, Label: db.Zero(r.Label), ExternalID: db.Zero(r.ExternalID), MIMEType: db.Zero(r.MimeType),
		ByteRef: db.Zero(r.ByteRef), Author: db.Zero(r.AgentID), Thread: db.Zero(r.ThreadID), Run: db.Zero(r.RunID), Resource: db.Zero(r.ResourceID),
		Metadata: r.Metadata, CreatedAt: r.CreatedAt, blob: db.Zero(r.BlobID), Size: size,
	}
	if a.blob != "" {
		a.HasBytes, a.ByteRef = true, "sha256:"+hex.EncodeToString(sha256)
	}
	return a
}

// FileName returns a name for a file with the bytes that is harmless anywhere: no path, no control characters, nothing
// that changes the direction of text, not hidden, and not long.
func (a Artifact) FileName() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("._-+ ()", r):
			return r
		}
		return '_'
	}, a.Label)
	name = strings.Trim(name, ". ")
	if runes := []rune(name); len(runes) > 100 {
		name = string(runes[len(runes)-100:]) // instead of the beginning, because the end has the extension
	}
	if strings.Trim(name, "_") == "" {
		return a.Kind + "-" + a.ID
	}
	return name
}

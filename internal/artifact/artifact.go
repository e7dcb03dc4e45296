// Package artifact stores what outlives the sandbox that it comes from: files, output, screenshots, and references to
// things elsewhere, such as commits and links.
//
// An artifact is a record (this file). Most have bytes, which are in a blob store (package blob) under a key of their
// own. bytes.go writes them, reads them, and deletes those that nothing refers to.
//
// The rule to remember: the row of a blob is created before its bytes and deleted before them, and no key is used
// twice. Otherwise there could be bytes that no row leads to, which would never be deleted, or a deletion could hit
// bytes in use.
package artifact

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
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

// Draft describes an artifact to create. Its fields are those of [Artifact]; each may be empty.
type Draft struct {
	// ID is chosen by the caller and makes a retry harmless. The artifact's id is derived from it, because a caller who
	// chose real ids could find out which ids other houses have; see [db.IDFor]. If it is empty, the database generates
	// an id.
	ID string
	// Kind defaults to [File].
	Kind                        string
	Label, ExternalID, MIMEType string
	// ByteRef says where the bytes are if arbe does not store them.
	ByteRef               string
	Thread, Run, Resource string
	// Metadata is a JSON object of at most 8 KiB. Defaults to an empty one.
	Metadata json.RawMessage
}

const maxMetadata = 8 << 10

var (
	idForm   = lazyregexp.New(`^([a-z0-9]{8,32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
	kindForm = lazyregexp.New(`^[a-z][a-z0-9.-]{0,39}$`)
)

// check fills in a draft's defaults and validates it.
func (d *Draft) check() error {
	if d.Kind == "" {
		d.Kind = File
	}
	if len(bytes.TrimSpace(d.Metadata)) == 0 {
		d.Metadata = json.RawMessage("{}")
	}
	var err error
	if d.Label, err = entry.Name("label", d.Label, 200); err != nil {
		return err
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"external_id", d.ExternalID, 1000}, {"mime_type", d.MIMEType, 200}, {"byte_ref", d.ByteRef, 1000},
		{"run_id", d.Run, 64}, {"resource_id", d.Resource, 64}, {"thread_id", d.Thread, 64},
	} {
		switch {
		case utf8.RuneCountInString(f.value) > f.most:
			return fault.Newf(fault.Invalid, "shorten it", "%s: it has more than %d characters", f.name, f.most)
		case !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0):
			return fault.Newf(fault.Invalid, "send it as UTF-8 text without NUL bytes", "%s: it is not valid UTF-8 text", f.name)
		}
	}
	if d.ID != "" && !idForm.MatchString(d.ID) {
		return fault.New(fault.Invalid, "id: it has a form that cannot be chosen", "use a UUID, or 8 to 32 lower-case letters and digits, or leave it out")
	}
	if !kindForm.MatchString(d.Kind) {
		return fault.New(fault.Invalid, "kind: it is not a word", "use at most 40 lower-case letters, digits, dots and dashes, such as file")
	}
	if d.MIMEType != "" {
		if _, _, err := mime.ParseMediaType(d.MIMEType); err != nil {
			return fault.New(fault.Invalid, "mime_type: it is not a media type", "write it as text/plain, or leave it out").Because(err)
		}
	}
	var object map[string]any
	if len(d.Metadata) > maxMetadata || json.Unmarshal(d.Metadata, &object) != nil || object == nil || bytes.Contains(d.Metadata, []byte(`\u0000`)) {
		return fault.Newf(fault.Invalid, `write it as {"key": "value"}`, "metadata: it is not a JSON object of at most %d bytes, without NUL characters", maxMetadata)
	}
	return nil
}

// idIn returns the id of the draft's artifact in a house; empty lets the database generate one.
func (d Draft) idIn(house string) string {
	if d.ID == "" {
		return ""
	}
	return db.IDFor(house, d.ID)
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

// CreateTx creates an artifact in the scope's house in the caller's transaction, with the bytes of an upload, or
// without bytes if up is nil. An artifact of a thread is deleted with the thread's log, which forks of the thread keep.
// The same draft with the same ID returns the existing artifact; a different draft with that ID is a [fault.Exists]. If
// the transaction fails, the caller must discard the upload. Call CreateTx before an append to a log in the same
// transaction: otherwise two transactions could take their locks in different orders and deadlock.
func (a *Artifacts) CreateTx(ctx context.Context, tx pgx.Tx, scope db.Scope, d Draft, up *Upload) (Artifact, error) {
	if err := d.check(); err != nil {
		return Artifact{}, err
	}
	if up != nil && d.ByteRef != "" {
		return Artifact{}, fault.New(fault.Invalid, "byte_ref: arbe stores the bytes of this artifact itself", "send either bytes or a byte_ref")
	}
	var stream *int64
	if d.Thread != "" {
		id, err := a.q.StreamOfThread(ctx, tx, d.Thread)
		if errors.Is(err, pgx.ErrNoRows) {
			return Artifact{}, fault.New(fault.NotFound, "there is no such thread", "list the threads with: arbe thread list")
		}
		if err != nil {
			return Artifact{}, err
		}
		stream = &id
	}
	held := ""
	if up != nil {
		var err error
		if held, err = a.holdTx(ctx, tx, scope.House, *up); err != nil {
			return Artifact{}, err
		}
	}
	chosen := d.idIn(scope.House)
	id, err := a.q.InsertArtifact(ctx, tx, query.InsertArtifactParams{
		ID: chosen, HouseID: scope.House, Kind: d.Kind, Label: db.Null(d.Label), ExternalID: db.Null(d.ExternalID), MimeType: db.Null(d.MIMEType),
		ByteRef: db.Null(d.ByteRef), BlobID: db.Null(held), AgentID: db.Null(scope.Agent), ThreadID: db.Null(d.Thread), StreamID: stream,
		RunID: db.Null(d.Run), ResourceID: db.Null(d.Resource), Metadata: d.Metadata,
	})
	taken := errors.Is(err, pgx.ErrNoRows)
	if taken {
		id = chosen
	} else if err != nil {
		return Artifact{}, err
	}
	made, err := a.getTx(ctx, tx, id)
	if taken && (fault.CodeOf(err) == fault.NotFound || err == nil && !(made.is(d) && made.blob == held)) {
		return Artifact{}, idTaken() // by a different artifact, or by one that is being deleted
	}
	return made, err
}

func idTaken() *fault.Error {
	return fault.New(fault.Exists, "this id already belongs to a different artifact", "choose another id, or leave it out")
}

// is reports whether the artifact matches a draft, apart from its bytes.
func (a Artifact) is(d Draft) bool {
	var ours, theirs any
	if json.Unmarshal(a.Metadata, &ours) != nil || json.Unmarshal(d.Metadata, &theirs) != nil || !reflect.DeepEqual(ours, theirs) {
		return false
	}
	return a.Kind == d.Kind && a.Label == d.Label && a.ExternalID == d.ExternalID && a.MIMEType == d.MIMEType &&
		a.Thread == d.Thread && a.Run == d.Run && a.Resource == d.Resource && (a.HasBytes || a.ByteRef == d.ByteRef)
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

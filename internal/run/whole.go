package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file keeps the full results of tools whose log entry has only a part. The runner sends the text first and then
// the entry. The server puts the artifact's name into the entry, because a runner could name artifacts that are not
// its own.

// wholeKind is the kind of an artifact with the full result of a tool.
const wholeKind = "result"

// keptID returns the id for creating a run's artifact. It follows from the entry's id, so a retry stores it once.
func keptID(threadID, entryID string) string {
	sum := sha256.Sum256([]byte("run\x00" + threadID + "\x00" + entryID))
	return hex.EncodeToString(sum[:16])
}

// KeepWhole stores the full text of the result that a run will post under this entry id. A second call does nothing,
// even with another text.
//
// Errors: a [fault.Forbidden] if the run is over, a [fault.Invalid] for an empty text or an id of another run, and a
// [fault.Exhausted] if the run or the house has reached its limit.
func (r *Runs) KeepWhole(ctx context.Context, by Poster, id string, text []byte) error {
	p, err := r.posts.of(ctx, r, by)
	if err != nil {
		return err
	}
	if entry.RunOf(id) != entry.RunID(by.Epoch) || len(id) > 200 {
		return fault.Newf(fault.Invalid, "use that of the result", "whole: it is not the id of an entry of run %d", by.Epoch)
	}
	if len(text) == 0 {
		return fault.New(fault.Invalid, "whole: the text is empty", "post the result without it")
	}
	if r.config.Artifacts == nil {
		return fault.New(fault.Invalid, "whole: this server keeps no artifacts", "post the result without it")
	}
	if !p.mayKeep(int64(len(text)), r.config.Limits) {
		return fault.Newf(fault.Exhausted, "post the result without it", "the run may write %d entries and %d bytes", r.config.Limits.Entries, r.config.Limits.Bytes)
	}
	epoch := strconv.FormatInt(by.Epoch, 10)
	_, err = r.config.Artifacts.Create(ctx, db.Scope{House: by.House, Agent: by.Agent}, artifact.Draft{
		ID: keptID(by.Thread, id), Kind: wholeKind, Label: "result of run " + epoch + ".txt", ExternalID: id, MIMEType: "text/plain; charset=utf-8", Thread: by.Thread, Run: epoch,
	}, bytes.NewReader(p.redactor.Bytes(text)))
	if fault.CodeOf(err) == fault.Exists {
		return nil
	}
	return err
}

// nameKept names, in results, the artifacts that hold their full text.
func (r *Runs) nameKept(ctx context.Context, by Poster, drafts []entry.Draft) error {
	for i, d := range drafts {
		if d.Type != (entry.PiToolResult{}).Type() || r.config.Artifacts == nil {
			continue
		}
		result, ok := entry.As[entry.PiToolResult](entry.Entry{Type: d.Type, Payload: d.Payload})
		if !ok || result.Details == nil || result.Details.WholeBytes == 0 {
			continue
		}
		kept, err := r.config.Artifacts.Get(ctx, db.Scope{House: by.House, Agent: by.Agent}, db.IDFor(by.House, keptID(by.Thread, d.ID)))
		if fault.CodeOf(err) == fault.NotFound {
			continue // KeepWhole refused it
		} else if err != nil {
			return err
		}
		result.Details.ArtifactID, result.Details.WholeBytes = kept.ID, kept.Size
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(d.Payload, &fields); err != nil {
			return err
		}
		if fields["details"], err = json.Marshal(result.Details); err != nil {
			return err
		}
		if drafts[i].Payload, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	return nil
}

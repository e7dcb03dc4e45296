package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
)

// maxTouchEach is the longest time between two records that a sandbox is in use.
const maxTouchEach = 30 * time.Second

// Tree is the known state of a sandbox's working tree, and how the sandbox was built.
type Tree struct {
	// UsedAt is when something last ran in the sandbox, to within half a minute, and SavedAt when its tree was saved.
	// They are zero if that never happened.
	UsedAt, SavedAt time.Time
	// Saved lists the saved parts.
	Saved []SavedPart
	// Steps are the steps in which the sandbox was built.
	Steps []entry.PreparationStep

	// commits holds the cloned commits of repositories, by folder. The server recorded them, so that a program in the
	// sandbox cannot change the base of a patch.
	commits map[string]string
}

// SavedPart is a saved part of a working tree: the changes of a repository since a commit, or an archive of other files.
type SavedPart struct {
	// Folder is its path in the working tree; "." is the tree itself.
	Folder string `json:"folder"`
	// Commit is the base of the patch; empty for an archive.
	Commit string `json:"commit,omitempty"`
	// Artifact is the patch or archive; empty if there was nothing to save. By is the sandbox that it was saved from.
	Artifact string `json:"artifact,omitempty"`
	By       string `json:"by,omitempty"`
	// Files is the number of its files, and Commits the number of unpushed commits that it replaces.
	Files   int `json:"files,omitempty"`
	Commits int `json:"commits,omitempty"`
	// Missing tells what it lacks, if anything.
	Missing string `json:"missing,omitempty"`
}

// of returns the saved part of a folder.
func (t Tree) of(folder string) (SavedPart, bool) {
	for _, p := range t.Saved {
		if p.Folder == folder {
			return p, true
		}
	}
	return SavedPart{Folder: folder}, false
}

// Tree returns the known state of the working tree of a sandbox of the scope's house.
func (s *Sandboxes) Tree(ctx context.Context, scope db.Scope, id string) (t Tree, err error) {
	err = s.db.In(ctx, scope, func(tx pgx.Tx) error {
		t, err = s.treeTx(ctx, tx, id)
		return err
	})
	return t, err
}

func (s *Sandboxes) treeTx(ctx context.Context, tx pgx.Tx, id string) (t Tree, err error) {
	row, err := s.q.SandboxTree(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, nil
	} else if err != nil {
		return t, err
	}
	t.UsedAt, t.SavedAt = db.Zero(row.UsedAt), db.Zero(row.SavedAt)
	return t, errors.Join(json.Unmarshal(row.Commits, &t.commits), json.Unmarshal(row.Saved, &t.Saved), json.Unmarshal(row.Steps, &t.Steps))
}

// TouchTx records that something runs in a sandbox, or has just ended. It does nothing if the sandbox does not exist.
func (s *Sandboxes) TouchTx(ctx context.Context, tx pgx.Tx, id string) error {
	return s.q.TouchTree(ctx, tx, id)
}

// KeepUsed records that a sandbox is in use, until ended is called. Until then it does not count as idle on any server.
// When ended returns, nothing more is recorded. Losing one record is harmless, because the next one follows soon.
// The sandbox must be running.
func (s *Sandboxes) KeepUsed(ctx context.Context, scope db.Scope, id string) (ended func()) {
	_, ended = s.keepUsed(ctx, scope, id, true)
	return ended
}

// keepUsed is KeepUsed for a sandbox that may be starting. It counts as running from the call of runs on.
func (s *Sandboxes) keepUsed(ctx context.Context, scope db.Scope, id string, running bool) (runs, ended func()) {
	ctx = context.WithoutCancel(ctx)
	done := make(chan struct{})
	var isRunning atomic.Bool
	isRunning.Store(running)
	touch := func() { s.touch(ctx, scope, id, isRunning.Load()) }
	touch()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		tick := time.NewTicker(s.touchEach)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				touch()
			}
		}
	})
	runs = func() {
		if !isRunning.Swap(true) {
			touch()
		}
	}
	return runs, func() {
		close(done)
		// A record that came after ended would make the sandbox look used, and a sweep at that moment would not save it.
		ticking.Wait()
		touch()
	}
}

// use is the latest record of this server that a sandbox is in use.
type use struct {
	at      time.Time
	done    bool // it is in the database
	running bool // the sandbox was running, too
}

// touch records that a sandbox is in use, and perhaps running, unless this server has just recorded it.
func (s *Sandboxes) touch(ctx context.Context, scope db.Scope, id string, running bool) {
	now := use{at: time.Now(), running: running}
	if last, ok := s.touched.Load(id); ok && last.(use).done && (last.(use).running || !running) && now.at.Sub(last.(use).at) < s.touchEach {
		return
	}
	s.touched.Store(id, now)
	bounded, cancel := context.WithTimeout(ctx, maxTouchEach)
	defer cancel()
	err := s.db.In(bounded, scope, func(tx pgx.Tx) error {
		if err := s.TouchTx(bounded, tx, id); err != nil || !running {
			return err
		}
		return s.observeTx(bounded, tx, id, observation{known: knownRunning})
	})
	if err != nil {
		s.logger.DebugContext(ctx, "cannot note that a sandbox is in use", "sandbox", id, "error", err)
		return
	}
	// A save may have begun meanwhile, and removed the record. Then the next use is recorded without a pause.
	s.touched.CompareAndSwap(id, now, use{now.at, true, running})
}

// recordBootTx records how a sandbox was built, and with which files it begins.
func (s *Sandboxes) recordBootTx(ctx context.Context, tx pgx.Tx, box Sandbox, t Tree) error {
	commits, err := json.Marshal(maps.Collect(maps.All(t.commits)))
	if err != nil {
		return err
	}
	saved, err := json.Marshal(append([]SavedPart{}, t.Saved...))
	if err != nil {
		return err
	}
	steps, err := json.Marshal(append([]entry.PreparationStep{}, t.Steps...))
	if err != nil {
		return err
	}
	return s.q.RecordBoot(ctx, tx, query.RecordBootParams{SandboxID: box.ID, HouseID: box.House, Commits: commits, SavedAt: db.Null(t.SavedAt), Saved: saved, Steps: steps})
}

// recordSavedTx records the saved parts of a tree as of a time.
func (s *Sandboxes) recordSavedTx(ctx context.Context, tx pgx.Tx, box Sandbox, at time.Time, parts []SavedPart) error {
	saved, err := json.Marshal(append([]SavedPart{}, parts...))
	if err != nil {
		return err
	}
	return s.q.RecordSaved(ctx, tx, query.RecordSavedParams{SandboxID: box.ID, HouseID: box.House, SavedAt: at, Saved: saved})
}

// keepNamedTx keeps the artifacts of parts that did not come back into a replacement, because its log names them.
// Otherwise saving the replaced sandbox again could delete them.
func (s *Sandboxes) keepNamedTx(ctx context.Context, tx pgx.Tx, replacement Sandbox, said entry.SandboxResumed) error {
	failed := func(p entry.TreePart) bool { return p.Problem != "" && p.ArtifactID != "" }
	if !slices.ContainsFunc(said.Tree, failed) {
		return nil
	}
	old, err := s.treeTx(ctx, tx, replacement.Replaces)
	if err != nil || len(old.Saved) == 0 {
		return err
	}
	for i := range old.Saved {
		old.Saved[i].By = ""
	}
	return s.recordSavedTx(ctx, tx, Sandbox{ID: replacement.Replaces, House: replacement.House}, old.SavedAt, old.Saved)
}

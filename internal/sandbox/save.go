package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// saveTimeout limits the saving of one folder.
	saveTimeout = 3 * time.Minute
)

// trees saves the working trees of sandboxes as artifacts, from which builds restore them. It is safe for concurrent use.
type trees struct {
	db           *db.DB
	threads      *thread.Threads
	environments *Environments
	sandboxes    *Sandboxes
	drivers      *drivers
	artifacts    *artifact.Artifacts // nil: nothing is saved
	locks        *locks
	logger       *slog.Logger
	q            *query.Queries
}

// savePatch prints the changes of the repository in the folder $2 since the commit $1: a patch for git apply, with
// new files that are not ignored. $3 goes before the paths in the patch, and $4 is an option of git diff or empty. It
// works in a separate repository that borrows the tree's objects. So it changes nothing in the tree, and runs no
// program that the tree's configuration names. Its last line of errors describes the patch. It exits with 20 if the
// folder is no repository with a commit.
const savePatch = `LC_ALL=C; export LC_ALL
cd -- "$2" 2>/dev/null || exit 20
command -v git >/dev/null || exit 20
rm -rf "$HOME"/.arbe-tree.*; own=$(mktemp -d "$HOME/.arbe-tree.XXXXXX") || exit 21
trap 'rm -rf "$own"' EXIT
base=$1
HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0
GIT_LITERAL_PATHSPECS=1 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1
export HOME GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL GIT_ATTR_NOSYSTEM GIT_OPTIONAL_LOCKS GIT_TERMINAL_PROMPT GIT_LITERAL_PATHSPECS GIT_NO_REPLACE_OBJECTS GIT_NO_LAZY_FETCH
g() { git -c safe.directory='*' -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.untrackedCache=false -c diff.ignoreSubmodules=all -c core.quotePath=false "$@"; }
head=$(g rev-parse --verify --quiet 'HEAD^{commit}' 2>/dev/null) && [ -z "$(g rev-parse --show-cdup)" ] || exit 20
common=$(g rev-parse --path-format=absolute --git-common-dir) || exit 21
index=$(g rev-parse --path-format=absolute --git-path index)
exclude=$(g rev-parse --path-format=absolute --git-path info/exclude)
g init --quiet --bare --template= --object-format="$(g rev-parse --show-object-format)" "$own/git" || exit 21
mkdir -p "$own/git/objects/info" "$own/git/info" && echo "$common/objects" >"$own/git/objects/info/alternates" || exit 21
[ -f "$index" ] && cp -p "$index" "$own/git/index" 2>/dev/null || rm -f "$own/git/index"
[ -f "$exclude" ] && cp "$exclude" "$own/git/info/exclude" 2>/dev/null
GIT_DIR=$own/git GIT_WORK_TREE=$PWD; export GIT_DIR GIT_WORK_TREE
g config core.bare false || exit 21
g cat-file -e "$base^{commit}" 2>/dev/null || base=$head
find . -xdev -path ./.git -prune -o \( -name .git -o -type f -size +32768 \) -prune -print 2>/dev/null |
	sed -e 's/^\.//' -e 's,/\.git$,/,' -e 's/[][*?\\ ]/\\&/g' >"$own/large"
add() { g -c core.excludesFile="$own/large" add --all --ignore-errors . >/dev/null 2>"$own/said"; }
add || { rm -f "$own/git/index"; g read-tree "$base" && add || :; }
g diff --cached --quiet "$base" 2>"$own/said"; [ $? -le 1 ] || { cat "$own/said" >&2; exit 21; }
nul() { tr -dc '\000' | wc -c; }
left=$(g -c core.excludesFile=/dev/null ls-files --others --exclude-standard -z | nul)
files=$(g diff --cached --name-only --no-renames -z "$base" | nul)
commits=$(g rev-list --count "$base..$head" 2>/dev/null || echo 0)
g diff --cached $4 --no-color --no-ext-diff --no-textconv --no-renames --src-prefix="a/$3" --dst-prefix="b/$3" "$base" || exit 21
echo "saved $base" $files $left $commits >&2`

// saveFiles prints a tar archive of the folder $1. It leaves out files that are easy to recreate, the folders in the
// further arguments, and large files. Its last line of errors says how many were left out.
const saveFiles = `LC_ALL=C; export LC_ALL
cd -- "$1" 2>/dev/null || { echo "saved - 0 0 0" >&2; exit 0; }
shift
for f; do set -- "$@" -o -path "./$f"; shift; done
left=$(find . -xdev \( -name node_modules -o -name __pycache__ "$@" \) -prune -o \( -type f -size +32768 -o -name '*
*' \) -print 2>/dev/null | grep -c '^\./')
find . -xdev \( -name node_modules -o -name __pycache__ "$@" \) -prune -o \( -type d -o -type l -o -type f -size -32769 \) ! -name '*
*' -print 2>/dev/null | tar -cf - --no-recursion -T /dev/stdin
code=$?
echo "saved - 0 $left 0" >&2
[ $code -le 2 ] || exit $code`

// notRepository is the exit code of savePatch for a folder that is no repository.
const notRepository = 20

// described matches the last line of errors of these scripts.
var described = lazyregexp.New(`(?m)^saved (-|[0-9a-f]{40,64}) +(\d{1,7}) +(\d{1,7}) +(\d{1,7})\s*\z`)

// save saves the working tree of a live or dead sandbox whose box this server reaches. unsaved says what could not be
// saved because of the tree itself; its earlier saved version is kept. If something fails that may work later,
// nothing is recorded.
func (t *trees) save(ctx context.Context, box Sandbox) (unsaved string, err error) {
	if t.artifacts == nil || box.Ref == "" {
		return "", nil
	}
	unlock, err := t.locks.lock(ctx, box.ID)
	if err != nil {
		return "", err
	}
	defer unlock()
	scope := db.Scope{House: box.House}
	env, err := t.environments.Environment(ctx, scope, box.Environment)
	if err != nil {
		return "", err
	}
	driver, err := t.drivers.of(ctx, box)
	if err != nil {
		return "", err
	}
	before, err := t.sandboxes.Tree(ctx, scope, box.ID)
	if err != nil {
		return "", err
	}
	t.sandboxes.touched.Delete(box.ID) // changes from now on are not saved
	s := &saving{trees: t, scope: scope, box: box, driver: driver, before: before}
	if s.began, err = t.now(ctx); err != nil {
		return "", err
	}
	err = s.all(ctx, env.Recipe.checkouts())
	if err == nil {
		err = s.record(ctx)
	}
	if err != nil {
		s.discard(ctx)
	}
	return strings.Join(s.unsaved, "; "), err
}

// now returns the database's time, because the times of uses are by its clock.
func (t *trees) now(ctx context.Context) (now time.Time, err error) {
	err = t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select now()").Scan(&now) })
	return now, err
}

// saveUnknown saves the working tree of a box without a record, for the thread in its labels, if that thread exists.
func (t *trees) saveUnknown(ctx context.Context, driver Driver, b Box) error {
	if t.artifacts == nil || b.Labels.Thread == "" {
		return nil
	}
	scope := db.Scope{House: b.Labels.House}
	_, err := t.threads.Get(ctx, scope, b.Labels.Thread)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	env, err := t.environments.Environment(ctx, scope, b.Labels.Environment)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	s := &saving{trees: t, scope: scope, box: Sandbox{ID: b.ID, House: b.Labels.House, Ref: b.Ref}, driver: driver, thread: b.Labels.Thread}
	if err = s.all(ctx, env.Recipe.checkouts()); err == nil {
		err = s.record(ctx)
	}
	if err != nil {
		s.discard(ctx)
	}
	return err
}

// alsoSaved is [Reaper.AlsoSaved].
func (t *trees) alsoSaved(ctx context.Context, scope db.Scope, id string, part SavedPart) error {
	now, err := t.now(ctx)
	if err != nil || t.artifacts == nil {
		return err
	}
	return t.db.In(ctx, scope, func(tx pgx.Tx) error {
		s := &saving{trees: t}
		if s.box, err = t.sandboxes.lockTx(ctx, tx, id); err != nil {
			return err
		}
		if s.before, err = t.sandboxes.treeTx(ctx, tx, id); err != nil || len(s.before.commits) != 1 || part.Commit == "" || s.before.commits[part.Folder] != part.Commit {
			return err
		}
		if err := s.deleteOldTx(ctx, tx, Tree{Saved: []SavedPart{part}}); err != nil {
			return err
		}
		return t.sandboxes.recordSavedTx(ctx, tx, s.box, now, []SavedPart{part})
	})
}

// saving saves one tree.
type saving struct {
	*trees
	scope   db.Scope
	box     Sandbox
	driver  Driver
	began   time.Time
	before  Tree
	parts   []*savedPart
	unsaved []string
	// thread is the thread that gets the artifacts of a box without a record; empty for a box with one.
	thread string
}

// savedPart is a saved part whose bytes are uploaded but not yet an artifact.
type savedPart struct {
	SavedPart
	bytes *artifact.Upload
	// name is its file extension, and left the number of files that it lacks.
	name string
	left int
}

// all saves each repository of the environment, and the files next to them.
func (s *saving) all(ctx context.Context, checkouts []Repository) error {
	var folders []string
	for _, repo := range checkouts {
		folders = append(folders, repo.Folder)
		if err := s.part(ctx, repo.Folder, nil, true); err != nil {
			return err
		}
	}
	if len(checkouts) == 1 && folders[0] == "." {
		return nil
	}
	return s.part(ctx, ".", folders, false)
}

// part saves one folder, except the folders in without.
func (s *saving) part(ctx context.Context, folder string, without []string, repository bool) error {
	p := &savedPart{SavedPart: SavedPart{Folder: folder, By: s.box.ID}}
	err := errNoRepository
	if repository {
		err = s.patch(ctx, p)
	}
	if errors.Is(err, errNoRepository) {
		err = s.files(ctx, p, without)
	}
	code := fault.CodeOf(err)
	old, saved := s.before.of(folder)
	if err != nil && p.bytes != nil {
		s.artifacts.Discard(ctx, s.scope, *p.bytes)
	}
	switch {
	case err == nil && (p.bytes != nil || p.Commit != "" || !repository):
		s.parts = append(s.parts, p)
		return nil
	case err == nil: // somebody deleted the repository and its files
		err = fault.New(fault.Precondition, "the repository is no longer in the sandbox", "clone it again")
	case ctx.Err() != nil || code != fault.Invalid && code != fault.Exhausted && code != fault.Precondition:
		return err
	default:
		s.unsaved = append(s.unsaved, at(folder, fault.From(err).Message))
	}
	if saved {
		if !s.before.SavedAt.IsZero() && old.Missing == "" {
			old.Missing = "what changed after " + s.before.SavedAt.UTC().Format("2 January 15:04 UTC") + ": " + fault.From(err).Message
		}
	} else {
		old = SavedPart{Folder: folder, Commit: s.before.commits[folder], Missing: "what was changed or made: " + fault.From(err).Message}
	}
	s.parts = append(s.parts, &savedPart{SavedPart: old})
	return nil
}

// errNoRepository reports that a folder has no repository with a commit.
var errNoRepository = errors.New("it is not a git repository")

// at prefixes a message with its folder, unless the folder is the whole tree.
func at(folder, said string) string {
	if folder == "." {
		return said
	}
	return folder + ": " + said
}

// patch saves the changes of a repository since the commit at which it was cloned.
func (s *saving) patch(ctx context.Context, p *savedPart) error {
	p.name = "patch"
	argv := []string{"/bin/sh", "-c", savePatch, "save", s.before.commits[p.Folder], path.Join(Workspace, p.Folder), "", "--binary"}
	return s.run(ctx, p, argv, func(to io.Writer, from io.Reader) error {
		_, err := io.Copy(&bounded{to: to, left: maxSaved}, from)
		return err
	})
}

// files saves a folder that is no repository.
func (s *saving) files(ctx context.Context, p *savedPart, without []string) error {
	p.name = "tar.gz"
	var files, left int
	argv := append([]string{"/bin/sh", "-c", saveFiles, "save", path.Join(Workspace, p.Folder)}, without...)
	err := s.run(ctx, p, argv, func(to io.Writer, from io.Reader) (err error) {
		files, left, err = cleanArchive(to, from)
		return err
	})
	if err != nil {
		return err
	}
	p.Files = files
	p.leaves(left)
	if files == 0 && p.bytes != nil {
		s.artifacts.Discard(ctx, s.scope, *p.bytes)
		p.bytes = nil
	}
	return nil
}

// leaves adds files to the description of what a part is missing.
func (p *savedPart) leaves(files int) {
	if files > 0 {
		p.left += files
		p.Missing = strconv.Itoa(p.left) + " files or folders that are too large, cannot be read, or are git hooks or repositories of their own"
	}
}

// run runs a script that prints a part. It passes the output to through, and uploads the result.
func (s *saving) run(ctx context.Context, p *savedPart, argv []string, through func(to io.Writer, from io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var said tail
	raw, printed := io.Pipe()
	ready, made := io.Pipe()
	var both sync.WaitGroup
	both.Go(func() {
		result, err := s.driver.Exec(ctx, s.box.Ref, Command{Argv: argv, Dir: "/", Stdout: printed, Stderr: &said, Timeout: saveTimeout})
		printed.CloseWithError(judge(result, err, &said))
	})
	both.Go(func() {
		err := through(made, raw)
		if err == nil {
			_, err = io.Copy(io.Discard, raw) // the padding after an archive, until the script ends
		}
		raw.CloseWithError(err)
		made.CloseWithError(err)
	})
	err := s.upload(ctx, p, ready)
	if err != nil {
		cancel()
	}
	ready.CloseWithError(err)
	both.Wait()
	if err != nil {
		return err
	}
	words := described.FindStringSubmatch(said.String())
	if words == nil {
		return fault.New(fault.Precondition, "the sandbox did not say what it saved", "check its git and its tar")
	}
	p.Commit = strings.TrimPrefix(words[1], "-")
	p.Files, _ = strconv.Atoi(words[2])
	p.Commits, _ = strconv.Atoi(words[4])
	left, _ := strconv.Atoi(words[3])
	p.leaves(left)
	return nil
}

// upload uploads a part, unless it is empty.
func (s *saving) upload(ctx context.Context, p *savedPart, from io.Reader) error {
	content := bufio.NewReader(from)
	if _, err := content.Peek(1); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	up, err := s.artifacts.Upload(ctx, s.scope, content)
	if err == nil {
		p.bytes = &up
	}
	return err
}

// judge returns the error of a script that printed a part.
func judge(result Result, err error, said *tail) error {
	switch {
	case err != nil:
		return err
	case result.TimedOut:
		return fault.Newf(fault.Precondition, "make the tree smaller", "saving it took longer than %v", saveTimeout)
	case result.ExitCode == notRepository:
		return errNoRepository
	case result.ExitCode != 0:
		text := said.String()
		return fault.Newf(fault.Precondition, "check the disk of the sandbox, and its git and tar", "the sandbox could not save it (exit code %d): %s", result.ExitCode, entry.OneLine(text[strings.LastIndexByte(text, '\n')+1:], 200))
	}
	return nil
}

// record turns the uploads into artifacts, and deletes the artifacts that they replace.
func (s *saving) record(ctx context.Context) error {
	return s.db.In(ctx, s.scope, func(tx pgx.Tx) error {
		of := s.thread
		on, err := s.threads.OnSandboxTx(ctx, tx, s.box.ID)
		if err != nil {
			return err
		}
		if len(on) == 1 { // an artifact of a thread is deleted with it, but other threads might still need it
			of = on[0]
		}
		now := Tree{}
		for _, p := range s.parts {
			if p.bytes != nil {
				made, err := s.artifacts.CreateTx(ctx, tx, s.scope, p.draft(s.box, of), p.bytes)
				if err != nil {
					return err
				}
				p.Artifact = made.ID
			}
			now.Saved = append(now.Saved, p.SavedPart)
		}
		if s.thread != "" {
			return nil
		}
		if err := s.deleteOldTx(ctx, tx, now); err != nil {
			return err
		}
		return s.sandboxes.recordSavedTx(ctx, tx, s.box, s.began, now.Saved)
	})
}

// draft describes the artifact of a part.
func (p *savedPart) draft(box Sandbox, threadID string) artifact.Draft {
	d := artifact.Draft{Kind: "patch", MIMEType: "text/x-diff", Thread: threadID, Label: "files of sandbox " + box.ID + "." + p.name}
	if p.Folder != "." {
		d.Label = "files of sandbox " + box.ID + ", " + strings.ReplaceAll(p.Folder, "/", "-") + "." + p.name
	}
	if p.Commit == "" {
		d.Kind, d.MIMEType = "archive", "application/gzip"
	}
	return d
}

// deleteOldTx deletes this sandbox's artifacts that are no longer named anywhere.
func (s *saving) deleteOldTx(ctx context.Context, tx pgx.Tx, now Tree) error {
	for _, old := range s.before.Saved {
		if p, _ := now.of(old.Folder); old.Artifact == "" || old.By != s.box.ID || p.Artifact == old.Artifact {
			continue
		}
		named, err := s.q.BeganElsewhere(ctx, tx, s.box.House, s.box.ID, old.Artifact)
		if err == nil && !named {
			err = s.artifacts.DeleteTx(ctx, tx, old.Artifact)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// discard deletes unused uploads.
func (s *saving) discard(ctx context.Context) {
	for _, p := range s.parts {
		if p.bytes != nil {
			s.artifacts.Discard(ctx, s.scope, *p.bytes)
		}
	}
}

// bounded fails once more than left is written to it.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, tooMuch()
	}
	return b.to.Write(p)
}

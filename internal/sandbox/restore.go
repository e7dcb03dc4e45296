package sandbox

import (
	"compress/gzip"
	"context"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// restore returns the files that a replacement begins with; nil for a sandbox that replaces none. It first saves a
// live predecessor, if this server reaches it.
func (t *trees) restore(ctx context.Context, box Sandbox) (*restoring, error) {
	if box.Replaces == "" {
		return nil, nil
	}
	scope := db.Scope{House: box.House}
	old, err := t.sandboxes.Sandbox(ctx, scope, box.Replaces)
	if fault.CodeOf(err) == fault.NotFound {
		return &restoring{open: t.open(scope)}, nil
	} else if err != nil {
		return nil, err
	}
	silent := old.Status == StatusLive && !t.saves(ctx, old)
	from, err := t.sandboxes.Tree(ctx, scope, old.ID)
	for i := range from.Saved {
		if silent && from.Saved[i].Missing == "" {
			from.Saved[i].Missing = "what changed since then, because the old sandbox does not answer"
		}
	}
	now := func(ctx context.Context) (Tree, error) { return t.sandboxes.Tree(ctx, scope, old.ID) }
	return &restoring{from: from, open: t.open(scope), now: now}, err
}

// leavingTimeout limits how long a new sandbox waits until the thread's old one is saved.
const leavingTimeout = 2 * time.Minute

// saves saves a sandbox that a thread leaves, perhaps because it does not answer, and reports whether that worked.
func (t *trees) saves(ctx context.Context, box Sandbox) bool {
	if t.sandboxes.elsewhere(box) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, leavingTimeout)
	defer cancel()
	_, err := t.save(ctx, box)
	if err != nil {
		t.logger.WarnContext(ctx, "the files of a sandbox that a thread leaves could not be saved", "sandbox", box.ID, "error", fault.From(err).Detail())
	}
	return err == nil
}

// open returns a function that opens saved artifacts.
func (t *trees) open(scope db.Scope) func(context.Context, string) (io.ReadCloser, error) {
	return func(ctx context.Context, id string) (io.ReadCloser, error) {
		if t.artifacts == nil {
			return nil, fault.New(fault.NotFound, "this server keeps no artifacts", "use another server")
		}
		of, err := t.artifacts.Get(ctx, scope, id)
		if err != nil {
			return nil, err
		}
		return t.artifacts.Open(ctx, of)
	}
}

const (
	// restoreTimeout limits how long restoring one part takes.
	restoreTimeout = 5 * time.Minute
	// The exit codes of restorePatch if the commit cannot be found, and if the patch does not apply.
	commitGone, patchRefused = 40, 41
)

// restorePatch checks out the commit $2 in the repository $1. If $3 is not empty, it applies the patch from standard
// input, completely or not at all. Git refuses a patch that leads out of the repository, into its .git, or through a
// link.
const restorePatch = `set -e
cd -- "$1"
if [ -n "$2" ] && [ "$(git rev-parse HEAD)" != "$2" ]; then
	git cat-file -e "$2^{commit}" 2>/dev/null || git fetch --quiet origin "$2" 2>/dev/null || exit 40
	git reset --quiet --hard "$2"
fi
[ -n "$3" ] || exit 0
git apply --whitespace=nowarn - || { git reset --quiet --hard; git clean -ffdqx; exit 41; }`

// restoreFiles unpacks the archive from standard input into the empty folder $1, completely or not at all.
const restoreFiles = `cd -- "$1" && tar -xof - || { find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +; exit 41; }`

// clearFolder undoes a partial restore in the folder $1, which is a repository if $2 is not empty.
const clearFolder = `cd -- "$1"
if [ -n "$2" ]; then rm -f .git/index.lock; git reset --quiet --hard && git clean -ffdqx; else find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +; fi`

// restoreFiles restores the files outside the environment's repositories, before the repositories are cloned beside
// them.
func (p *preparing) restoreFiles() error {
	if p.restoring == nil {
		return nil
	}
	checkouts := p.recipe.checkouts()
	for _, part := range p.restoring.from.Saved {
		switch in := slices.ContainsFunc(checkouts, func(r Repository) bool { return r.Folder == part.Folder }); {
		case in && part.Commit != "":
			continue // it is restored when it is cloned
		case in:
			p.restoring.failed(part, "the environment clones a repository there, and what was saved is not one")
		case part.Commit != "":
			p.restoring.failed(part, "the environment does not clone this repository any more")
		case part.Folder != ".":
			p.restoring.failed(part, "it is no folder of the environment")
		default:
			if err := p.restorePart(part); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreCheckout restores a repository that was just cloned, and notes its commit.
func (p *preparing) restoreCheckout(repo Repository) error {
	if p.restoring != nil {
		part, saved := p.restoring.from.of(repo.Folder)
		if !saved {
			part.Commit = p.restoring.from.commits[repo.Folder]
		}
		if part.Commit != "" {
			if err := p.restorePart(part); err != nil {
				return err
			}
		}
	}
	return p.noteCommit(repo)
}

// noteCommit notes the commit of a repository.
func (p *preparing) noteCommit(repo Repository) error {
	var out tail
	argv := []string{"git", "-C", path.Join(Workspace, repo.Folder), "rev-parse", "--verify", "--quiet", "HEAD^{commit}"}
	result, err := p.driver.Exec(p.ctx, p.ref, Command{Argv: argv, Dir: "/", Stdout: &out, Timeout: restoreTimeout})
	if commit := strings.TrimSpace(out.String()); err == nil && result.ExitCode == 0 && commit != "" {
		p.commits[repo.Folder] = commit
	}
	return err
}

// restorePart restores one part. It returns an error only if repeating the preparation may succeed.
func (p *preparing) restorePart(part SavedPart) error {
	p.watch.step(at(part.Folder, "restore the files"))
	began := time.Now()
	problem, err := p.bring(&part)
	if err != nil {
		return err
	}
	p.boot = append(p.boot, entry.PreparationStep{Name: at(part.Folder, "restore"), DurationMS: time.Since(began).Milliseconds(), Output: problem})
	if problem != "" {
		p.restoring.failed(part, problem)
		return nil
	}
	p.restoring.parts = append(p.restoring.parts, part.told())
	return nil
}

// bring brings one part into the sandbox, and extends the list of its missing files. problem says why that is not
// possible.
func (p *preparing) bring(part *SavedPart) (problem string, err error) {
	content, gone, err := p.restoring.content(p.ctx, part)
	if gone {
		return "what was saved has been deleted", nil
	} else if err != nil {
		return "", err
	}
	if part.Commit == "" && part.Artifact == "" {
		return part.Missing, nil
	}
	cmd := Command{Dir: "/", Timeout: min(restoreTimeout, p.stepTime), Merged: true}
	var said tail
	cmd.Stdout = &said
	if content != nil {
		defer content.Close()
		cmd.Stdin = content
	}
	folder := path.Join(Workspace, part.Folder)
	if part.Commit == "" {
		files, err := gzip.NewReader(cmd.Stdin)
		if err != nil {
			return "what was saved cannot be read", nil //nolint:nilerr // a retry would not help
		}
		free, end := p.besideCheckouts(files)
		defer func() { part.lacks(end()) }()
		cmd.Stdin, cmd.Argv = free, []string{"/bin/sh", "-c", restoreFiles, "restore", folder}
	} else {
		cmd.Env = p.checkoutEnv()
		cmd.Argv = []string{"/bin/sh", "-c", restorePatch, "restore", folder, part.Commit, part.Artifact}
	}
	read := &failing{Reader: cmd.Stdin}
	if cmd.Stdin != nil {
		cmd.Stdin = read
	}
	result, err := p.driver.Exec(p.ctx, p.ref, cmd)
	switch {
	case err != nil:
		return "", err
	case read.err != nil: // the artifact store failed, not the patch
		return "", read.err
	case result.ExitCode == commitGone:
		return "the commit " + part.Commit[:min(len(part.Commit), 7)] + " is not in the repository any more", nil
	case result.ExitCode == patchRefused:
		return "the sandbox refused what was saved: " + firstLine(said.String()), nil
	case result.TimedOut:
		return "it took too long", p.quiet("clearing "+folder, "/bin/sh", "-c", clearFolder, "clear", folder, part.Commit)
	case result.ExitCode != 0:
		return "it failed: " + firstLine(said.String()), p.quiet("clearing "+folder, "/bin/sh", "-c", clearFolder, "clear", folder, part.Commit)
	}
	return "", nil
}

// content opens what was saved of a part; nil if nothing was. The old sandbox may still be used, and each time it is saved,
// what was saved before is deleted. Then part becomes what was saved last. gone reports that there is nothing newer.
func (r *restoring) content(ctx context.Context, part *SavedPart) (content io.ReadCloser, gone bool, err error) {
	for part.Artifact != "" {
		if content, err = r.open(ctx, part.Artifact); fault.CodeOf(err) != fault.NotFound {
			return content, false, err
		}
		if r.now == nil {
			return nil, true, nil
		}
		now, err := r.now(ctx)
		if err != nil {
			return nil, false, err
		}
		newer, ok := now.of(part.Folder)
		if !ok || newer.Artifact == part.Artifact {
			return nil, true, nil
		}
		r.from.SavedAt, *part = now.SavedAt, newer
		if i := slices.IndexFunc(r.from.Saved, func(p SavedPart) bool { return p.Folder == newer.Folder }); i >= 0 {
			r.from.Saved[i] = newer
		}
	}
	return nil, false, nil
}

// besideCheckouts returns an archive without the files in the folders of repositories that are cloned later. The
// environment may clone others than when the files were saved, and programs of a sandbox choose the contents of the
// archive. end stops the copying, and returns how many files were left out.
func (p *preparing) besideCheckouts(files io.Reader) (free io.Reader, end func() (left int)) {
	var folders []string
	for _, repo := range p.recipe.checkouts() {
		folders = append(folders, repo.Folder)
	}
	read, write := io.Pipe()
	left := 0
	var copying sync.WaitGroup
	copying.Go(func() {
		var err error
		left, err = besides(folders, write, files)
		write.CloseWithError(err)
	})
	return read, func() int {
		read.Close()
		copying.Wait()
		return left
	}
}

// lacks adds files to the description of what a part is missing.
func (s *SavedPart) lacks(inTheWay int) {
	if inTheWay == 0 {
		return
	}
	text := strconv.Itoa(inTheWay) + " files where the environment now clones a repository"
	if s.Missing != "" {
		text = s.Missing + ", and " + text
	}
	s.Missing = text
}

// failing keeps the error of a reader.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return entry.OneLine(line, 200)
}

// failed records that a part was not restored.
func (r *restoring) failed(part SavedPart, problem string) {
	told := part.told()
	told.Problem = problem
	r.parts = append(r.parts, told)
}

// told returns the part's entry for the log.
func (s SavedPart) told() entry.TreePart {
	return entry.TreePart{Folder: s.Folder, Commit: s.Commit, Files: s.Files, Commits: s.Commits, ArtifactID: s.Artifact, Missing: s.Missing}
}

// saved returns what counts as saved for the new sandbox: the restored parts.
func (r *restoring) saved() (t Tree) {
	if r == nil {
		return t
	}
	t.SavedAt = r.from.SavedAt
	for _, part := range r.from.Saved {
		back := func(told entry.TreePart) bool { return told.Folder == part.Folder && told.Problem == "" }
		if slices.ContainsFunc(r.parts, back) {
			t.Saved = append(t.Saved, part)
		}
	}
	return t
}

// words returns the log entry about the restored files.
func (r *restoring) words(box Sandbox) entry.SandboxResumed {
	said := entry.SandboxResumed{SandboxID: box.ID, PreviousSandboxID: box.Replaces, Left: box.ReplacesFor != "", Tree: r.parts}
	if len(r.from.Saved) > 0 {
		said.SavedMS = r.from.SavedAt.UnixMilli()
	} else {
		said.Tree = append(said.Tree, entry.TreePart{Folder: ".", Problem: "what was changed or made in the old sandbox, because it had not been saved"})
	}
	return said
}

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/secret"
)

// An environment is built once. Drivers that support it keep the files of the first box as they are after its setup,
// and later boxes begin with them. The files are no longer used if one of their sources changes: the recipe, the
// commit of a ref, or the value of a secret that the setup receives. A box that begins with saved files is built from
// the beginning, and its files are not kept.
//
// Before cached files are used, git in the new box reads the commits of all refs, with the environment's credentials and
// through its policy. So a user who has lost access to a repository does not get it from the cache.

const (
	// cacheVersion changes with the kinds of files that are kept.
	cacheVersion = 1
	// refsTimeout limits a request for the commits of one repository.
	refsTimeout = time.Minute
)

// layerNote is the note of a layer.
type layerNote struct {
	Key string `json:"key"`
	// Commits are the cloned commits, by folder.
	Commits map[string]string `json:"commits"`
}

// cacheable reports whether building a box of the recipe takes more than creating it.
func (r Recipe) cacheable() bool { return len(r.checkouts()) > 0 || r.Setup != "" }

// take replaces the box's files with the cached environment, and reports whether there is one. If not, keep makes one.
func (c *cached) take(p *preparing) bool {
	if c.layers == nil || !p.recipe.cacheable() {
		return false
	}
	p.watch.step("look for the cached environment")
	began := time.Now()
	if c.findKey(p); c.key == "" {
		return false
	}
	layer, err := c.layers.TakeLayer(p.ctx, p.ref, c.key)
	var note layerNote
	if err == nil {
		err = json.Unmarshal(layer.Note, &note)
	}
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return false
	case err != nil:
		// The cause may also prevent a new layer.
		c.logger.WarnContext(p.ctx, "a cached environment cannot be used; the sandbox is built from the beginning", "ref", p.ref, "error", fault.From(err).Detail())
		c.key = ""
		return false
	}
	maps.Copy(p.commits, note.Commits)
	p.watch.step("begin with the cached environment, built " + ago(time.Since(layer.MadeAt)))
	step := entry.PreparationStep{Name: entry.CachedEnvironment, DurationMS: time.Since(began).Milliseconds(), Output: "built " + ago(time.Since(layer.MadeAt))}
	p.steps, p.boot = append(p.steps, step), append(p.boot, step)
	return true
}

// keep keeps the files of the box for the next one. A failure is only logged.
func (c *cached) keep(p *preparing) {
	if c.key == "" {
		return
	}
	began := time.Now()
	p.watch.step("keep the files for the next sandbox")
	step := entry.PreparationStep{Name: "cache", Output: "kept for the next sandbox"}
	if err := c.tryKeep(p); err != nil {
		c.logger.WarnContext(p.ctx, "a built environment is not cached", "ref", p.ref, "error", fault.From(err).Detail())
		step.Output = "not kept: " + fault.From(err).Message
	}
	step.DurationMS = time.Since(began).Milliseconds()
	p.boot = append(p.boot, step)
}

// tryKeep keeps the files of the box, unless they do not match the key.
func (c *cached) tryKeep(p *preparing) error {
	for _, repo := range p.recipe.checkouts() {
		if commit := p.commits[repo.Folder]; commit == "" || commit != repo.Ref && !strings.Contains(c.refs[repo.Folder], commit) {
			return fault.Newf(fault.Aborted, "build another sandbox", "%s changed while it was cloned", repo.URL)
		}
	}
	note, err := json.Marshal(layerNote{c.key, p.commits})
	if err != nil {
		return err
	}
	return c.layers.KeepLayer(p.ctx, p.ref, c.key, note)
}

// state finds out whether the next sandbox begins with cached files. It is for a diagnosis, whose box was built from the
// beginning. If there are no cached files, it keeps those of the box.
func (c *cached) state(p *preparing, labels Labels) (Check, error) {
	if c.layers == nil {
		return Check{Result: CheckSkipped, Message: "the driver keeps no built environments"}, nil
	}
	if !p.recipe.cacheable() {
		return Check{Result: CheckSkipped, Message: "there is nothing to keep"}, nil
	}
	if c.findKey(p); c.key == "" {
		return Check{Result: CheckWarning, Message: "it is not kept, because nobody can say at which commit its ref is", Next: "name a branch, a tag or a whole commit"}, nil
	}
	list, err := c.layers.Layers(p.ctx, Labels{Installation: labels.Installation, House: labels.House, Environment: labels.Environment})
	if err != nil {
		return Check{}, err
	}
	for _, l := range list {
		var note layerNote
		if !l.Old && json.Unmarshal(l.Note, &note) == nil && note.Key == c.key {
			return Check{Message: "the next sandbox begins with what was built " + ago(time.Since(l.MadeAt))}, nil
		}
	}
	if err := c.tryKeep(p); err != nil {
		f := fault.From(err)
		return Check{Result: CheckWarning, Message: "each sandbox is built from the beginning: " + f.Message, Next: f.Next}, nil
	}
	return Check{Message: "the next sandbox begins with what was built just now"}, nil
}

// findKey computes the key of the layer from everything that the files depend on. It is empty if the commit of some ref
// is not known.
func (c *cached) findKey(p *preparing) {
	c.refs = map[string]string{}
	for _, repo := range p.recipe.checkouts() {
		refs, err := p.refsOf(repo)
		if err != nil {
			return // cloning it reports the error
		}
		if refs == "" && !wholeCommit.MatchString(repo.Ref) {
			return // an expression, whose commit only a clone knows
		}
		c.refs[repo.Folder] = refs
	}
	of := struct {
		Version                 int
		Rebuilds                int32
		Image, Setup, Directory string
		Checkouts               []Repository
		Refs                    map[string]string
		Git                     []GitCredential
		Egress                  egress.Policy
		Secrets                 map[string]int64
		Files                   []secret.Binding `json:",omitempty"`
	}{
		cacheVersion, c.rebuilds, p.recipe.Image, p.recipe.Setup, p.recipe.Directory, p.recipe.checkouts(), c.refs, p.recipe.Git, p.recipe.egress(), nil, nil,
	}
	if p.recipe.Setup != "" { // a repository's own setup receives no secrets
		of.Secrets = p.received.Revisions
		for _, b := range p.recipe.Secrets {
			if b.File != "" {
				of.Files = append(of.Files, b)
			}
		}
	}
	text, err := json.Marshal(of)
	if err != nil {
		return
	}
	sum := sha256.Sum256(text)
	c.key = hex.EncodeToString(sum[:])
}

// wholeCommit matches the full id of a commit.
var wholeCommit = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// refNames returns the names under which a ref of a recipe may be found.
func refNames(ref string) []string {
	switch {
	case ref == "":
		return []string{"HEAD"}
	case wholeCommit.MatchString(ref):
		return []string{"HEAD"} // shows that the repository can be read
	}
	return []string{"refs/heads/" + ref, "refs/tags/" + ref, "refs/tags/" + ref + "^{}"}
}

// refsOf returns the commits that a repository's ref may refer to, as git prints them. It returns none for a full commit
// id. An error means that the repository cannot be read.
func (p *preparing) refsOf(repo Repository) (refs string, err error) {
	if dir, local := localRepo(repo.URL); local {
		refs, err = p.repositories.refs(p.ctx, dir, repo.Ref)
	} else {
		refs, err = p.remoteRefs(repo)
	}
	if wholeCommit.MatchString(repo.Ref) {
		refs = ""
	}
	return refs, err
}

// remoteRefs asks the repository with git in the box.
func (p *preparing) remoteRefs(repo Repository) (string, error) {
	var out, complaint tail
	argv := append([]string{"git", "ls-remote", "--quiet", "--", repo.URL}, refNames(repo.Ref)...)
	env := map[string]string{"GIT_TERMINAL_PROMPT": "0"} // nobody could answer
	result, err := p.driver.Exec(p.ctx, p.ref, Command{Argv: argv, Stdout: &out, Stderr: &complaint, Timeout: min(refsTimeout, p.stepTime), Env: env})
	if err == nil && result.ExitCode != 0 {
		err = fault.Newf(fault.Precondition, "correct the environment", "%s cannot be read: %s", repo.URL, complaint.String())
	}
	return sortedLines(out.String()), err
}

// refs is refsOf for a repository of this machine.
func (r repositories) refs(ctx context.Context, dir, ref string) (string, error) {
	dir, err := r.allowed(ctx, dir)
	if err != nil {
		return "", err
	}
	names := refNames(ref)
	var out []byte
	if names[0] == "HEAD" {
		out, err = git(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}").Output()
	} else {
		out, err = git(ctx, dir, "for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "--", names[0], names[1]).Output()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = unreadable(dir, "", err)
	}
	return sortedLines(string(out)), err
}

func sortedLines(text string) string {
	lines := slices.Sorted(strings.Lines(strings.TrimSpace(text) + "\n"))
	return strings.TrimSpace(strings.Join(lines, ""))
}

// ago says how long ago something was.
func ago(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if n := int(d / unit.size); n == 1 {
			return "1 " + unit.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("%d %ss ago", n, unit.name)
		}
	}
	return "less than a minute ago"
}

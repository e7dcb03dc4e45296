package sandbox

import (
	"io"
	"path"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// defaultStepTime limits each step of a preparation, unless the operator's limit for commands is lower.
	defaultStepTime = 30 * time.Minute
	// bundlePath is where a repository of this machine is put in a box for the clone. It is outside the working tree,
	// because git clones only into an empty directory.
	bundlePath = Home + "/.arbe-repo.bundle"
)

// run prepares the box as the recipe says, and shows the output to watchers. The scripts receive secrets, which are
// removed from their output. The steps are those that were done, even if run fails. A failed step is the last one, and
// the error is a [fault.Precondition].
func (p *preparing) run() error {
	if err := p.configureGit(); err != nil {
		return err
	}
	if p.cached.take(p) {
		if err := p.findDefaults(); err != nil {
			return err
		}
		return p.start()
	}
	for _, do := range []func() error{p.restoreFiles, p.cloneAll, p.findDefaults, p.enterDirectory, p.setUp} {
		if err := do(); err != nil {
			return err
		}
	}
	p.cached.keep(p)
	return p.start()
}

// configureGit makes git use the server's door where the recipe has credentials.
func (p *preparing) configureGit() error {
	if len(p.recipe.Git) == 0 {
		return nil
	}
	door, err := p.git.door(p.ctx, p.driver, p.ref)
	if err != nil {
		return err
	}
	if door == "" {
		return fault.Newf(fault.Precondition, "leave out git; use a local environment on a machine with nf_tables; or ask the operator to set public_url to where the sandboxes reach the server",
			"git: sandboxes of the driver %s do not reach the server, which has the credentials", p.recipe.driver())
	}
	if p.git.tokens(p.driver) {
		if err := p.git.write(p.ctx, p.driver, p.ref, p.of.House, p.of.ID); err != nil {
			return err
		}
	}
	const configure = `command -v git >/dev/null || { echo "the image has no git"; exit 1; }; while [ $# -gt 0 ]; do git config --global --add "$1" "$2"; shift 2; done`
	return p.quiet("git config", append([]string{"/bin/sh", "-ec", configure, "git"}, p.git.configuration(door, p.driver, p.recipe.Git)...)...)
}

// cloneScript clones $1 into the folder $5, at the ref $3 and with a depth of $4 commits. $1 may be a bundle of a
// repository on the server's machine. The bundle is deleted later, so origin is set to the recipe's address $2.
const cloneScript = `set -e
if [ -n "$4" ] && [ -n "$3" ]; then
	git init --quiet -- "$5"; cd "$5"
	git remote add origin "$1"
	git fetch --quiet --depth "$4" origin "$3"
	git checkout --quiet FETCH_HEAD --
	if git check-ref-format --branch "$3" >/dev/null 2>&1 && git ls-remote --exit-code --heads origin "$3" >/dev/null 2>&1; then git checkout --quiet -B "$3" FETCH_HEAD --; fi
else
	git clone --quiet ${4:+--depth "$4"} -- "$1" "$5"; cd "$5"
	if [ -n "$3" ]; then git checkout --quiet "$3" --; fi
fi
git remote set-url origin "$2"
rm -f "` + bundlePath + `"`

func (p *preparing) cloneAll() error {
	for _, repo := range p.recipe.checkouts() {
		if err := p.clone(repo); err != nil {
			return err
		}
		if err := p.restoreCheckout(repo); err != nil {
			return err
		}
	}
	return nil
}

// cloneName is the name of the step that clones one of a recipe's repositories.
func cloneName(list []Repository, repo Repository) string {
	if len(list) > 1 {
		return "clone " + repo.Folder
	}
	return "clone"
}

// clone clones one repository of the recipe.
func (p *preparing) clone(repo Repository) error {
	source := repo.URL
	if path, local := localRepo(repo.URL); local {
		upload := func(bundle io.Reader) error { return p.driver.Upload(p.ctx, p.ref, bundlePath, 0o600, bundle) }
		if err := p.repositories.bundle(p.ctx, path, upload); err != nil {
			return err
		}
		source = bundlePath
	}
	depth := ""
	if repo.Depth > 0 && source == repo.URL { // a bundle has its whole history
		depth = strconv.Itoa(repo.Depth)
	}
	name := cloneName(p.recipe.checkouts(), repo)
	return p.do(script{name: name, env: p.checkoutEnv(), argv: []string{"/bin/sh", "-c", cloneScript, "clone", source, repo.URL, repo.Ref, depth, repo.Folder}})
}

// checkoutEnv returns variables for git that checks files out.
func (p *preparing) checkoutEnv() map[string]string {
	if len(p.recipe.Git) == 0 {
		return nil
	}
	// The server's door has no LFS. Without its files a repository is of use, and the setup can fetch those of other hosts.
	return map[string]string{"GIT_LFS_SKIP_SMUDGE": "1"}
}

func (p *preparing) enterDirectory() error {
	dir := p.recipe.with(p.own.Defaults).Directory
	if dir == "" {
		return nil
	}
	return p.quiet("mkdir "+dir, "mkdir", "-p", "--", dir)
}

// setUp runs the setup script: the recipe's with its secrets, or otherwise the first repository's without any.
func (p *preparing) setUp() error {
	recipe := p.recipe.with(p.own.Defaults)
	if recipe.Setup != "" {
		return p.do(script{name: "setup", argv: []string{"/bin/sh", "-e", "-c", recipe.Setup}, dir: recipe.directory(), env: recipe.env, received: p.received})
	}
	if p.own.setup == "" {
		return nil
	}
	dir := path.Join(Workspace, p.own.StartIn)
	return p.do(script{name: "setup of " + p.ownFile, argv: []string{"/bin/sh", "-e", "-c", p.own.setup}, dir: dir, env: recipe.env})
}

// start runs the start script for the first time.
func (p *preparing) start() error {
	recipe := p.recipe.with(p.own.Defaults)
	if recipe.Start == "" {
		return nil
	}
	s := script{name: "start", argv: startArgv(recipe), dir: recipe.startDirectory(), env: recipe.env}
	if !recipe.unreviewed {
		s.received = p.received
	}
	return p.do(s)
}

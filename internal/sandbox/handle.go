package sandbox

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Handle is a sandbox in which this server can run commands. It is safe for concurrent use.
type Handle struct {
	Sandbox
	driver Driver
	recipe Recipe
	maxima Maxima
	door   string // from [doorOf]
	// missing are the files of messages that are not there yet.
	missing []string
}

// Timeout returns the time limit of a command: the requested one or, if that is zero, the recipe's. A limit above the
// operator's maximum is a [fault.Invalid].
func (p Handle) Timeout(asked time.Duration) (time.Duration, error) {
	return p.maxima.timeout(asked, p.recipe)
}

// Most caps a time limit at the operator's maximum.
func (p Handle) Most(limit time.Duration) time.Duration { return p.maxima.time(limit) }

// Directory returns where a command starts: dir itself or, if dir is relative, dir below the environment's directory.
func (p Handle) Directory(dir string) string {
	if path.IsAbs(dir) {
		return dir
	}
	return path.Join(p.recipe.directory(), dir)
}

// Secrets returns the secrets that each command of the sandbox receives, according to its current environment.
func (p Handle) Secrets() []secret.Binding { return p.recipe.Secrets }

// Env returns the environment variables that the repository of the sandbox gives to commands, and [MissingFiles] if there are
// any. The caller must not change them.
func (p Handle) Env() map[string]string {
	if len(p.missing) == 0 {
		return p.recipe.env
	}
	env := map[string]string{MissingFiles: strings.Join(p.missing, " ")}
	maps.Copy(env, p.recipe.env)
	return env
}

// MissingFiles is the environment variable with [Handle.Missing], separated by spaces, in which no name has any.
const MissingFiles = "ARBE_FILES_MISSING"

// Missing returns the names of the files of messages that were not in [entry.FilesFolder] when the use of the sandbox began,
// because they are large or could not be written. They come later.
func (p Handle) Missing() []string { return p.missing }

// Exec runs a command; see [Driver]. The caller sets its time limit.
func (p Handle) Exec(ctx context.Context, cmd Command) (Result, error) {
	return p.driver.Exec(ctx, p.Ref, cmd)
}

// Upload writes a file, and Download opens one; see [Driver].
func (p Handle) Upload(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	return p.driver.Upload(ctx, p.Ref, path, mode, content)
}

// Download opens a regular file; see [Driver].
func (p Handle) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	return p.driver.Download(ctx, p.Ref, path)
}

// Launcher returns the launcher for commands that outlive this server; false if the sandbox does not support them.
func (p Handle) Launcher() (Launcher, bool) {
	l, ok := p.driver.(Launcher)
	return l, ok && l.Launches()
}

// Dialer returns the dialer for the ports of programs in the sandbox. If its driver has none, the error is a
// [fault.Precondition].
func (p Handle) Dialer() (Dialer, error) {
	d, ok := p.driver.(Dialer)
	if s, states := p.driver.(Stating); ok && states && s.Guarantees().Ports {
		return d, nil
	}
	return nil, fault.Newf(fault.Precondition, "use an environment with another driver", "sandboxes of the driver %s cannot be reached at their ports", p.Provider)
}

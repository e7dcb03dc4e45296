package embedded

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// process is a child that ends with us.
type process struct {
	*os.Process
	exited chan struct{}
	state  error // read after exited
}

// spawn runs cmd in its own process group, so that a Ctrl-C in our terminal reaches only us and we decide the order
// of ending. If arbe is killed, Linux sends the child deathSignal. On other systems, the next start ends it.
func spawn(cmd *exec.Cmd, deathSignal syscall.Signal) (*process, error) {
	dieWithParent(cmd.SysProcAttr, deathSignal)
	cmd.SysProcAttr.Setpgid = true
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// On Linux, the parent is the thread that forked, not its process. So that thread must live as long as the
		// child, but the Go runtime could end or reuse it at any time.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.Process = cmd.Process
		}
		started <- err
		if err != nil {
			return
		}
		p.state = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// end returns how the process ended; nil for success. It may be called once exited is closed.
func (p *process) end() error { return p.state }

// cutOff ends PostgreSQL without its checkpoint, by force if necessary, and waits for its end.
func (p *process) cutOff() {
	_ = p.Signal(syscall.SIGQUIT) // an error means that it has ended
	select {
	case <-p.exited:
	case <-time.After(cutOffTimeout):
		_ = p.Kill()
		<-p.exited
	}
}

// killGroup kills the process and its children and waits for its end.
func (p *process) killGroup() {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	<-p.exited
}

// account is the user that PostgreSQL runs as: another one if we are root, because PostgreSQL refuses to run as root.
type account struct {
	name       string
	credential *syscall.Credential // nil: the current user
}

// accountFor returns the account that owns the cluster, or that will own it if there is none yet.
func accountFor(cluster string) (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "this user"}, nil
	}
	if err := rootMayStepDown(); err != nil {
		return account{}, err
	}
	if uid, gid, ok := ownerOf(cluster); ok && uid != 0 {
		return account{name: "uid " + strconv.Itoa(int(uid)), credential: &syscall.Credential{Uid: uid, Gid: gid}}, nil
	}
	who, err := unprivileged()
	if err != nil {
		return account{}, err
	}
	// A cluster that root put there, for example by unpacking a backup.
	if err := who.ownAll(cluster); err != nil {
		return account{}, fault.Newf(fault.Precondition, "change the owner of everything in it to "+who.name,
			"the cluster %s belongs to root, and PostgreSQL does not run as root", cluster).Because(err)
	}
	return who, nil
}

func ownerOf(path string) (uid, gid uint32, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return stat.Uid, stat.Gid, true
}

// unprivileged returns the user that root switches to for PostgreSQL.
func unprivileged() (account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, fault.New(fault.Precondition, "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as",
		"add one (`useradd --system postgres`), or start arbe as an ordinary user")
}

// own gives the account one of our files or directories.
func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// ownAll gives the account a tree, the root last, because accountFor takes the owner of the root as the owner of the
// whole tree.
func (a account) ownAll(root string) error {
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return a.own(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, a.own(root))
}

// command returns a PostgreSQL program that works on the cluster in dir.
func (a account) command(program string, dir *os.File, args ...string) *exec.Cmd {
	return a.commandIn(program, dir, func(path string) []string {
		return append([]string{"-D", path}, args...)
	})
}

// commandIn returns a PostgreSQL program, run by the account. args returns its arguments for a path of dir.
//
// Another user inherits the directory as an open file and names it by that, because its path may lead through
// directories that this user may not enter, such as root's home.
func (a account) commandIn(program string, dir *os.File, args func(path string) []string) *exec.Cmd {
	path := dir.Name()
	var files []*os.File
	if a.credential != nil {
		path = inheritedDirectory
		files = []*os.File{dir}
	}
	cmd := exec.Command(program, args(path)...)
	cmd.ExtraFiles = files
	cmd.Dir = "/" // which every user may enter
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	return cmd
}

// environment returns the few of our variables that PostgreSQL needs. The others may hold secrets, which anyone with
// access to the database could read, or settings (PGDATA, PGOPTIONS) for another database.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// cannotRun returns the error for binaries that the account cannot run.
func (a account) cannotRun(bin binaries, cause error) error {
	return fault.Newf(fault.Precondition, "let that user read and run them, or name others in "+binariesSetting,
		"the PostgreSQL binaries in %s cannot be run as %s", bin.dir, a.name).Because(cause)
}

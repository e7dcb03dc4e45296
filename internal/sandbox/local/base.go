//go:build linux

package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// pid1Path is where process 1 of a box finds its program, in every root file system.
const pid1Path = "/.arbe/init"

// rootfs is what a box sees as /: a directory that it cannot write to, and what is bound into it.
type rootfs struct {
	path  string
	binds []string // host paths, bound read-only at the same place
	env   []string // the environment its programs expect
}

// Parts of the host's /etc that programs under /usr need to work, and that hold no secret. Directories
// are bound, so that an update of the host shows; single files are copied, because a package manager
// replaces them by renaming, which a bind does not see.
var (
	etcDirs = []string{
		"alternatives", "ca-certificates", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies",
		"ld.so.conf.d", "fonts", "terminfo", "perl", "python3*", "java-*", "maven",
	}
	etcFiles = []string{
		"ld.so.cache", "ld.so.conf", "services", "protocols", "mime.types", "debian_version", "ssl/openssl.cnf",
		"bash.bashrc", "inputrc",
	}
)

// hostBase makes the root file system of boxes without an image in dir: the host's /usr, read-only, with
// just enough around it. extra are more host directories to show, such as a tool chain under /opt.
//
// /root, /home, /run, /var, /srv and the rest of the host do not exist in it.
func hostBase(dir string, extra []string) (rootfs, error) {
	base := rootfs{path: dir, binds: []string{"/usr"}, env: []string{"PATH=" + hostPath}}
	if _, err := os.Stat("/usr/local/go/bin"); err == nil {
		base.env = []string{"PATH=/usr/local/go/bin:" + hostPath}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return base, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return base, err
	}
	defer root.Close()

	// /bin, /lib and friends are links into /usr, or on older systems directories beside it.
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if target, err := os.Readlink("/" + name); err == nil {
			if err := root.Symlink(target, name); err != nil {
				return base, err
			}
		} else if _, err := os.Stat("/" + name); err == nil {
			base.binds = append(base.binds, "/"+name)
		}
	}
	for _, pattern := range etcDirs {
		found, _ := filepath.Glob("/etc/" + pattern)
		base.binds = append(base.binds, found...)
	}
	base.binds = append(base.binds, extra...)
	for _, dir := range base.binds {
		if err := root.MkdirAll(dir[1:], 0o755); err != nil {
			return base, err
		}
	}
	for _, name := range etcFiles {
		content, err := os.ReadFile("/etc/" + name)
		if err != nil {
			continue // this host has no such file
		}
		if err := writeFile(root, "etc/"+name, content, 0o644); err != nil {
			return base, err
		}
	}
	for name, content := range map[string]string{
		"passwd":        "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000:agent:" + sandbox.Home + ":/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"resolv.conf":   "# this sandbox has no network\n",
	} {
		if err := writeFile(root, "etc/"+name, []byte(content), 0o644); err != nil {
			return base, err
		}
	}
	for name, target := range map[string]string{
		"etc/os-release": "../usr/lib/os-release", "etc/localtime": "/usr/share/zoneinfo/Etc/UTC", "etc/mtab": "/proc/self/mounts",
	} {
		if err := root.Symlink(target, name); err != nil {
			return base, err
		}
	}
	return base, completeRoot(root)
}

// completeRoot adds to a root file system what every box needs to find there: the places where things
// get mounted, and the program of process 1.
func completeRoot(root *os.Root) error {
	for _, dir := range []string{"proc", "dev", "tmp", "run", "var", "etc", sandbox.Workspace[1:], sandbox.Home[1:], filepath.Dir(pid1Path[1:])} {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// A runtime gives the file system it mounts on /tmp the mode of the directory below.
	if err := root.Chmod("tmp", 0o777|fs.ModeSticky); err != nil {
		return err
	}
	if err := root.Symlink("../tmp", "var/tmp"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := root.Stat("etc/hosts"); err != nil {
		if err := writeFile(root, "etc/hosts", nil, 0o644); err != nil {
			return err
		}
	}
	return writeFile(root, pid1Path[1:], pid1(), 0o555)
}

func writeFile(root *os.Root, name string, content []byte, mode fs.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	return root.WriteFile(name, content, mode)
}

// readOnly binds a host path at the same place in the box, the mounts below it too where the runtime can.
func readOnly(path string, apart bool) specs.Mount {
	if apart { // it refuses the option, and shows a mount with all that is below as one read-only file system
		return bind(path, path, "ro")
	}
	return bind(path, path, "ro", "rro")
}

// bind shows a host path in the box, without setuid programs and devices.
func bind(source, target string, options ...string) specs.Mount {
	return specs.Mount{
		Type: "bind", Source: source, Destination: target,
		Options: append([]string{"rbind", "rprivate", "nosuid", "nodev"}, options...),
	}
}

//go:build linux

package local

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The paths of process 1's program in every root file system: for a box with its own kernel, and for other boxes.
const (
	pid1Path       = "/.arbe/init"
	supervisorPath = "/.arbe/supervisor"
)

// rootfs is the root file system of a box: a directory that the box cannot write to, and the host paths bound into it.
type rootfs struct {
	path  string
	binds []string // host paths that are bound read-only at the same place
	env   []string // the environment that its programs expect
}

// The parts of the host that boxes without an image see. Each is listed here, because a directory that is shown by
// default may hold a password tomorrow.
var (
	// usrDirs are bound, so that updates of the host are visible. They do not include /usr/etc, /usr/local/etc and
	// other directories that an administrator keeps there.
	usrDirs = []string{
		"bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share", "games",
		"local/bin", "local/sbin", "local/lib", "local/lib64", "local/libexec", "local/include", "local/share", "local/games", "local/go",
	}
	// etcFiles are copied when a server starts. Programs in /usr need these files, and they are not meant to hold
	// secrets. Links are copied as links. The files are copied instead of bound, so that copyShown can leave out those
	// that not everyone may read.
	etcFiles = []string{
		"alternatives/*", "debian_version", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d/*.conf", "mime.types", "protocols", "services",
		"ssl/certs/*", "ssl/certs/java/cacerts", "pki/tls/cert.pem", "pki/tls/certs/*", "pki/ca-trust/extracted/*/*",
		"crypto-policies/config", "crypto-policies/back-ends/*", "crypto-policies/state/*",
		"fonts/fonts.conf", "fonts/conf.d/*", "terminfo/*/*",
		"python3/debian_config", "python3*/sitecustomize.py",
		"java-*/jvm*.cfg", "java-*/psfont*", "java-*/*.properties", "java-*/jfr/*.jfc", "java-*/management/management.properties",
		"java-*/security/java.policy", "java-*/security/java.security", "java-*/security/default.policy", "java-*/security/blocked.certs",
		"java-*/security/nss.cfg", "java-*/security/policy/*/*.policy",
		"maven/m2.conf", "maven/logging/*.properties",
	}
)

// maxEtcFile is the maximum size of one copied file, in bytes.
const maxEtcFile = 4 << 20

// openSSLConfig is enough for OpenSSL's commands. The host's own configuration may name keys and their PINs.
const openSSLConfig = `[req]
distinguished_name = req_distinguished_name
x509_extensions = v3_ca

[req_distinguished_name]
commonName = Common Name

[v3_ca]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always,issuer
basicConstraints = critical,CA:true
`

// hostBase creates the root file system for boxes without an image in dir: the programs of the host's /usr, read-only,
// and the few files that they need. extra are more host directories to show, such as a toolchain in /opt. host is the
// host's root, which is / except in tests.
//
// It contains nothing else of the host, such as /root, /home, /run, /var or /srv.
func hostBase(host, dir string, extra []string) (rootfs, error) {
	base := rootfs{path: dir, env: []string{"PATH=" + hostPath}}
	if _, err := os.Stat(filepath.Join(host, "usr/local/go/bin")); err == nil {
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

	// /bin, /lib and similar are links into /usr, or directories on older systems. There are links inside /usr too.
	dirs := []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}
	for _, name := range usrDirs {
		dirs = append(dirs, "usr/"+name)
	}
	if err := root.MkdirAll("usr/local", 0o755); err != nil {
		return base, err
	}
	for _, name := range dirs {
		info, err := os.Lstat(filepath.Join(host, name))
		switch {
		case err != nil: // the host has no such directory
		case info.IsDir():
			base.binds = append(base.binds, "/"+name)
		default:
			if err := copyLink(root, filepath.Join(host, name), name); err != nil {
				return base, err
			}
		}
	}
	base.binds = append(base.binds, extra...)
	for _, dir := range base.binds {
		if err := root.MkdirAll(dir[1:], 0o755); err != nil {
			return base, err
		}
	}
	if err := writeEtc(root, host); err != nil {
		return base, err
	}
	return base, completeRoot(root)
}

// writeEtc writes /etc: the host's files that boxes may see, and ours.
func writeEtc(root *os.Root, host string) error {
	for _, pattern := range etcFiles {
		found, _ := filepath.Glob(filepath.Join(host, "etc", pattern))
		for _, path := range found {
			name, err := filepath.Rel(host, path)
			if err == nil {
				err = copyShown(root, path, name)
			}
			if err != nil {
				return err
			}
		}
	}
	for name, content := range map[string]string{
		"passwd":              "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000:agent:" + sandbox.Home + ":/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":               "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
		"nsswitch.conf":       "passwd: files\ngroup: files\nhosts: files dns\n",
		"ssl/openssl.cnf":     openSSLConfig,
		"pki/tls/openssl.cnf": openSSLConfig,
	} {
		if err := writeFile(root, "etc/"+name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"etc/os-release": "../usr/lib/os-release", "etc/localtime": "/usr/share/zoneinfo/Etc/UTC", "etc/mtab": "/proc/self/mounts",
	} {
		if err := root.Symlink(target, name); err != nil {
			return err
		}
	}
	return nil
}

// copyShown copies a file of the host that boxes may see: a link as a link, and a file only if every user of the host
// may read it and it contains no private key, as some certificate bundles do.
func copyShown(root *os.Root, source, name string) error {
	info, err := os.Lstat(source)
	switch {
	case err != nil:
		return nil // it was removed meanwhile
	case info.Mode().Type() == fs.ModeSymlink:
		return copyLink(root, source, name)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 || info.Size() > maxEtcFile:
		return nil
	}
	content, err := os.ReadFile(source)
	if err != nil || bytes.Contains(content, []byte("PRIVATE KEY")) {
		return nil
	}
	return writeFile(root, name, content, 0o644)
}

// copyLink copies a link. Its target is resolved inside the box, and therefore cannot be another file of the host.
func copyLink(root *os.Root, source, name string) error {
	target, err := os.Readlink(source)
	if err != nil {
		return nil // it was replaced meanwhile
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return root.Symlink(target, name)
}

// completeRoot adds the mount points and the program of process 1, which every box needs, to a root file system.
//
// An image may have links there. Mounts follow links, even into files that the box writes, and the box could then
// choose what process 1 runs. So each mount point becomes a real directory.
func completeRoot(root *os.Root) error {
	for _, dir := range []string{"proc", "dev", "tmp", "etc", sandbox.Workspace[1:], sandbox.Home[1:], sandbox.SecretFolder[1:], filepath.Dir(pid1Path[1:])} {
		if err := makeRealDir(root, dir); err != nil {
			return err
		}
	}
	if _, err := root.Lstat("var"); errors.Is(err, fs.ErrNotExist) { // nothing is mounted there, so links are harmless
		if err := root.Mkdir("var", 0o755); err != nil {
			return err
		}
	}
	// The runtime gives the file system on /tmp the mode of this directory.
	if err := root.Chmod("tmp", 0o777|fs.ModeSticky); err != nil {
		return err
	}
	if info, err := root.Lstat("var"); err == nil && info.IsDir() {
		// Otherwise programs could not write to /var/tmp, because the root is read-only.
		if err := root.Symlink("../tmp", "var/tmp"); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// The box's own /etc/hosts and, if it has a network, /etc/resolv.conf are mounted over these files; see bundle.go.
	return errors.Join(writeFile(root, "etc/hosts", nil, 0o644), writeFile(root, "etc/resolv.conf", []byte("# this sandbox has no network\n"), 0o644),
		writeFile(root, pid1Path[1:], pid1(), 0o555), writeFile(root, supervisorPath[1:], supervisorProgram(), 0o555))
}

// makeRealDir creates a directory and its parents, and replaces anything else there, including links, because a mount
// would follow them.
func makeRealDir(root *os.Root, dir string) error {
	if parent := path.Dir(dir); parent != "." {
		if err := makeRealDir(root, parent); err != nil {
			return err
		}
	}
	if info, err := root.Lstat(dir); err == nil {
		if info.IsDir() {
			return nil
		}
		if err := root.Remove(dir); err != nil {
			return err
		}
	}
	return root.Mkdir(dir, 0o755)
}

func writeFile(root *os.Root, name string, content []byte, mode fs.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	// Otherwise the write would follow a link that an image has there.
	if err := removeIn(root, name); err != nil {
		return err
	}
	return root.WriteFile(name, content, mode)
}

// readOnly binds a host path at the same place in the box, with the mounts below it if the runtime supports that.
func readOnly(path string, ownKernel bool) specs.Mount {
	if ownKernel { // gVisor refuses the option, and shows a mount with everything below it as one read-only file system
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

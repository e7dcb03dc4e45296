//go:build linux

package local

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
)

// maxImageBytes is how large an unpacked image may be: one may come from anybody.
const maxImageBytes = 32 << 30

// images are the unpacked root file systems of OCI images, by digest. They are read-only to every box,
// so boxes share them. Their files belong to the server on the host, hence to nobody inside: what is
// open to everyone in the image is open to the box's user, which is not root there either.
type images struct {
	dir string // where they are kept
	run string // where boxes reach them, as root

	mu      sync.Mutex
	reached map[string]bool // bound below run
}

// pull makes an image available and returns its digest, which names it from then on. An image that is
// unpacked already costs one question to the registry: a tag may have moved.
func (s *images) pull(ctx context.Context, reference string) (digest string, err error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", fault.Newf(fault.Invalid, "name an OCI image such as docker.io/library/golang:1.26", "%q is not an image reference", reference).Because(err)
	}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", unreachable(reference, err)
	}
	hash, err := image.Digest()
	if err != nil {
		return "", unreachable(reference, err)
	}
	final := filepath.Join(s.dir, hash.Hex)
	if _, err := os.Stat(final); err == nil {
		return hash.Hex, nil
	}
	fresh, err := os.MkdirTemp(s.dir, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh) // nothing is left there when all went well
	if err := unpack(ctx, image, fresh); err != nil {
		if ctx.Err() != nil || fault.CodeOf(err) == fault.Exhausted {
			return "", err
		}
		return "", unreachable(reference, err)
	}
	err = os.Rename(fresh, final)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // somebody else was faster, with the same content
	}
	return hash.Hex, err
}

func unreachable(reference string, err error) error {
	return fault.New(fault.Unavailable, "the image "+reference+" cannot be fetched",
		"check its name and that this machine reaches its registry").Because(err)
}

// root is the root file system of an unpacked image.
func (s *images) root(digest string) (rootfs, error) {
	kept := filepath.Join(s.dir, digest)
	text, err := os.ReadFile(filepath.Join(kept, "env.json"))
	if err != nil {
		return rootfs{}, fault.New(fault.Precondition, "the image of this sandbox is not on this machine any more",
			"delete the sandbox: the thread gets a new one").Because(err)
	}
	root := rootfs{path: filepath.Join(kept, "rootfs")}
	if err := json.Unmarshal(text, &root.env); err != nil {
		return root, err
	}
	if !asRoot() {
		return root, nil
	}
	// Reached by a way that the ids of boxes may pass.
	s.mu.Lock()
	defer s.mu.Unlock()
	open := filepath.Join(s.run, digest)
	if !s.reached[digest] {
		if err := os.Mkdir(open, 0o755); err != nil {
			return root, err
		}
		if err := unix.Mount(root.path, open, "", unix.MS_BIND, ""); err != nil {
			return root, fmt.Errorf("bind the image: %w", err)
		}
		if s.reached == nil {
			s.reached = map[string]bool{}
		}
		s.reached[digest] = true
	}
	root.path = open
	return root, nil
}

// unpack writes an image below dir: rootfs/ and env.json.
func unpack(ctx context.Context, image v1.Image, dir string) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	env, err := json.Marshal(config.Config.Env)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "env.json"), env, 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		return err
	}
	// Every path of an archive is resolved below this root, whatever links earlier entries made.
	root, err := os.OpenRoot(filepath.Join(dir, "rootfs"))
	if err != nil {
		return err
	}
	defer root.Close()
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	left := int64(maxImageBytes)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		err = errors.Join(applyLayer(ctx, root, content, &left), content.Close())
		if err != nil {
			return err
		}
	}
	return completeRoot(root)
}

// applyLayer changes a root file system by one layer's archive.
func applyLayer(ctx context.Context, root *os.Root, content io.Reader, left *int64) error {
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if *left -= header.Size; *left < 0 {
			return fault.Newf(fault.Exhausted, "use a smaller image", "the image is larger than %d GiB unpacked", maxImageBytes>>30)
		}
		if err := applyEntry(root, header, archive); err != nil {
			return fmt.Errorf("unpack %s: %w", header.Name, err)
		}
	}
}

// Marks of deleted files in a layer, see the OCI image specification.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

func applyEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	file := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if file == "" {
		return nil
	}
	dir, base := path.Split(file)
	if base == opaqueWhiteout {
		return removeChildren(root, path.Clean(dir))
	}
	if hidden, ok := strings.CutPrefix(base, whiteout); ok {
		return root.RemoveAll(dir + hidden)
	}
	if dir != "" {
		if err := root.MkdirAll(path.Clean(dir), 0o755); err != nil {
			return err
		}
	}
	// The server must be able to enter and delete it; setuid means nothing in a box.
	mode := header.FileInfo().Mode().Perm()
	if header.Typeflag == tar.TypeDir {
		if info, err := root.Lstat(file); err == nil && !info.IsDir() {
			if err := root.RemoveAll(file); err != nil {
				return err
			}
		}
		return errors.Join(root.MkdirAll(file, 0o755), root.Chmod(file, mode|0o700))
	}
	if err := root.RemoveAll(file); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		f, err := root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(mode), f.Close())
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, file)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), file)
	default:
		return nil // device nodes and pipes: a box may have none
	}
}

func removeChildren(root *os.Root, dir string) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		err = errors.Join(err, root.RemoveAll(path.Join(dir, entry.Name())))
	}
	return err
}

//go:build linux

package local

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
)

// The limits of one image, which may come from anybody.
const (
	maxImageBytes   = 32 << 30 // unpacked
	maxImageEntries = 1 << 20  // files, directories and links in all layers
	maxLayers       = 256
	maxConfigBytes  = 8 << 20
	maxImageEnv     = 64 << 10 // bytes of its environment, which the server handles for every command
	maxPathLength   = 4096
	maxPathDepth    = 256
	maxZstdWindow   = 32 << 20 // the memory that decompression needs
	pullTimeout     = 30 * time.Minute
)

// images holds the unpacked root file systems of OCI images by digest. Boxes share them, because they are read-only.
// Their files belong to the server on the host, and to nobody inside a box. The box's user is not root there either,
// and can read only files that the image lets everyone read.
//
// Together they use at most space bytes. The least recently used images that no box uses are removed.
type images struct {
	dir        string // where they are stored
	run        string // where boxes access them, if the server is root
	space      int64  // the maximum size of all of them together, in bytes
	registries *registries
	// room fails if the disk of dir has too little free space.
	room func() error

	mu        sync.Mutex
	reached   map[string]bool          // prepared for this server's boxes, and bound below run if the server is root
	users     map[string]int           // how many boxes use an image
	unpacking map[string]chan struct{} // closed when unpacking has ended
}

// imageSizeFile holds the size of an unpacked image in bytes. Its modification time is when the image was last used.
const imageSizeFile = "size"

// clearUnfinished removes incomplete images. They remain when a server is killed while it unpacks or removes an image.
func (s *images) clearUnfinished() error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "unpacking-") || strings.HasPrefix(e.Name(), "removing-") {
			err = errors.Join(err, removeTree(filepath.Join(s.dir, e.Name())))
		}
	}
	return err
}

// pull makes an image available and returns its digest. The caller uses the image until it calls release. For an image
// that is already unpacked, it makes one request to the registry, because a tag may have moved.
func (s *images) pull(ctx context.Context, reference string) (digest string, err error) {
	within, cancel := context.WithTimeoutCause(ctx, pullTimeout, fault.Newf(fault.Unavailable, "try again, or use a smaller image",
		"the image %s could not be fetched within %v", reference, pullTimeout))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() == nil && within.Err() != nil {
			err = context.Cause(within)
		}
	}()
	image, err := s.registries.fetch(within, reference)
	if err != nil {
		return "", err
	}
	hash, err := image.Digest()
	if err != nil {
		return "", unreachable(reference, err)
	}
	digest = hash.Hex
	done, err := s.reserve(within, digest)
	if err != nil || done == nil {
		return digest, err
	}
	defer done()
	if err := s.add(within, image, digest); err != nil {
		s.release(digest)
		if _, ok := errors.AsType[*fault.Error](err); ok || within.Err() != nil || errors.Is(err, unix.ENOSPC) {
			return "", err
		}
		return "", unreachable(reference, err)
	}
	return digest, nil
}

// reserve makes the caller a user of an image. If the caller must unpack it first, done is not nil, and other users
// wait until the caller calls it.
func (s *images) reserve(ctx context.Context, digest string) (done func(), err error) {
	for {
		s.mu.Lock()
		wait := s.unpacking[digest]
		if wait == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer s.mu.Unlock()
	s.users[digest]++
	if _, err := os.Stat(filepath.Join(s.dir, digest)); err == nil {
		s.touch(digest)
		return nil, nil
	}
	wait := make(chan struct{})
	s.unpacking[digest] = wait
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.unpacking, digest)
		close(wait)
	}, nil
}

// use records that a box uses an image.
func (s *images) use(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[digest]++
}

// release records that a box no longer uses an image.
func (s *images) release(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[digest]--; s.users[digest] <= 0 {
		delete(s.users, digest)
	}
	s.touch(digest)
}

func (s *images) touch(digest string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(s.dir, digest, imageSizeFile), now, now) // an older server's image may have no such file
}

// add unpacks an image and makes room for it.
func (s *images) add(ctx context.Context, image v1.Image, digest string) error {
	// The image gets its name when it is complete, so that a crash leaves no partial image under a digest.
	fresh, err := os.MkdirTemp(s.dir, "unpacking-")
	if err != nil {
		return err
	}
	defer removeTree(fresh) // nothing is left there on success
	b := &budget{bytes: maxImageBytes, entries: maxImageEntries, room: s.room}
	if err := unpack(ctx, image, fresh, b); err != nil {
		return err
	}
	size := maxImageBytes - b.bytes
	if err := os.WriteFile(filepath.Join(fresh, imageSizeFile), fmt.Append(nil, size), 0o600); err != nil {
		return err
	}
	if err := s.collect(size); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(s.dir, digest))
}

// kept is an unpacked image.
type kept struct {
	digest string
	size   int64
	used   time.Time
}

// collect removes the least recently used images that no box uses, until there is room for size bytes.
func (s *images) collect(size int64) error {
	s.mu.Lock()
	list, total, err := s.list()
	var removed []string
	for _, image := range list {
		if total+size <= s.space || err != nil {
			break
		}
		if s.users[image.digest] > 0 {
			continue
		}
		// Only rename it here, because removing an image takes long and must not hold the lock.
		away := filepath.Join(s.dir, "removing-"+rand.Text())
		if err = errors.Join(s.unreach(image.digest), os.Rename(filepath.Join(s.dir, image.digest), away)); err == nil {
			removed = append(removed, away)
			total -= image.size
		}
	}
	s.mu.Unlock()
	for _, dir := range removed {
		err = errors.Join(err, removeTree(dir))
	}
	if err == nil && total+size > s.space {
		err = fault.Newf(fault.Exhausted, "delete sandboxes that are not needed, use a smaller image, or raise the setting image_space_mb",
			"the images of this machine's sandboxes use all of the %d MiB that they may; another %d MiB are needed", s.space>>20, (total+size-s.space)>>20)
	}
	return err
}

// list returns the unpacked images, least recently used first, and their total size.
func (s *images) list() (list []kept, total int64, err error) {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.Contains(e.Name(), "-") {
			continue // being unpacked or removed
		}
		image := kept{digest: e.Name(), size: maxImageBytes} // an older server did not store the size
		file := filepath.Join(s.dir, e.Name(), imageSizeFile)
		if text, err := os.ReadFile(file); err == nil {
			image.size, _ = strconv.ParseInt(string(text), 10, 64)
		}
		if info, err := os.Stat(file); err == nil {
			image.used = info.ModTime()
		}
		if image.size == maxImageBytes {
			image.size = diskUsage(filepath.Join(s.dir, e.Name()))
		}
		list, total = append(list, image), total+image.size
	}
	sort.Slice(list, func(i, j int) bool { return list[i].used.Before(list[j].used) })
	return list, total, err
}

// diskUsage adds up the sizes of the files in a directory.
func diskUsage(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			if info, err := e.Info(); err == nil {
				total += blocks(info.Size())
			}
		}
		return nil
	})
	return total
}

// root returns the root file system of an unpacked image.
func (s *images) root(digest string) (rootfs, error) {
	kept := filepath.Join(s.dir, digest)
	text, err := os.ReadFile(filepath.Join(kept, "env.json"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return rootfs{}, fault.New(fault.Precondition, "the image of this sandbox is no longer on this machine",
			"ask the operator to restore "+kept+"; without it the sandbox and its files can only be given up, by deleting it").Because(err)
	case err != nil:
		return rootfs{}, fault.New(fault.Unavailable, "the image of this sandbox cannot be read", "try again in a moment; if it stays, ask the operator").Because(err)
	}
	root := rootfs{path: filepath.Join(kept, "rootfs")}
	if err := json.Unmarshal(text, &root.env); err != nil {
		return root, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open := filepath.Join(s.run, digest)
	if !s.reached[digest] {
		if err := s.reach(root.path, open); err != nil {
			return root, err
		}
		s.reached[digest] = true
	}
	if asRoot() {
		root.path = open
	}
	return root, nil
}

// reach prepares an image for this server's boxes. It completes the root again, because an older server may have
// unpacked it with another version of process 1's program. If the server is root, reach binds the image to a path that
// the boxes' ids can pass.
func (s *images) reach(dir, open string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := completeRoot(root); err != nil || !asRoot() {
		return err
	}
	if err := os.Mkdir(open, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dir, open, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the image: %w", err)
	}
	return nil
}

// unreach undoes the binding of root. Callers hold s.mu.
func (s *images) unreach(digest string) error {
	if !s.reached[digest] {
		return nil
	}
	open := filepath.Join(s.run, digest)
	if asRoot() {
		if err := errors.Join(unmount(open), os.Remove(open)); err != nil {
			return err
		}
	}
	delete(s.reached, digest)
	return nil
}

// budget is what remains of an image's limits.
type budget struct {
	bytes, entries int64
	room           func() error
	unchecked      int64 // bytes since the disk's free space was last checked
}

// checkEvery is the number of bytes after which the disk's free space is checked again.
const checkEvery = 64 << 20

// spend subtracts an entry with size bytes from the budget.
func (b *budget) spend(size int64) error {
	if size < 0 {
		return fmt.Errorf("an entry with the size %d", size)
	}
	size = blocks(size)
	b.bytes, b.entries, b.unchecked = b.bytes-size, b.entries-1, b.unchecked+size
	switch {
	case b.bytes < 0:
		return fault.Newf(fault.Exhausted, "use a smaller image", "the image is larger than %d GiB unpacked", maxImageBytes>>30)
	case b.entries < 0:
		return fault.Newf(fault.Exhausted, "use a smaller image", "the image has more than %d files", maxImageEntries)
	case b.unchecked >= checkEvery:
		b.unchecked = 0
		return b.room()
	}
	return nil
}

// blocks estimates how much space a file of this size uses on a disk.
func blocks(size int64) int64 {
	const block, inode = 4096, 512
	return (size+block-1)/block*block + inode
}

// checkManifest refuses an image whose manifest exceeds the limits of an image, before its layers are fetched.
func checkManifest(image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	if manifest.Config.Size < 0 || manifest.Config.Size > maxConfigBytes || len(manifest.Layers) > maxLayers {
		return fault.New(fault.Exhausted, "the image has too many layers or too large a configuration", "use a smaller image")
	}
	var total int64
	for _, layer := range manifest.Layers {
		if total += layer.Size; layer.Size < 0 || layer.Size > maxImageBytes || total > maxImageBytes {
			return fault.Newf(fault.Exhausted, "use a smaller image", "the image is larger than %d GiB", maxImageBytes>>30)
		}
	}
	return nil
}

// content returns a layer's archive, decompressed. It verifies the layer's digest while it is read.
func content(layer v1.Layer) (io.ReadCloser, error) {
	compressed, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(compressed)
	magic, _ := buffered.Peek(4) // a shorter one is not an archive, and reading it fails
	archive := io.NopCloser(io.Reader(buffered))
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		archive, err = gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var decoder *zstd.Decoder
		decoder, err = zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err == nil {
			archive = decoder.IOReadCloser()
		}
	}
	if err != nil {
		return nil, errors.Join(err, compressed.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{archive, closers{archive, compressed}}, nil
}

type closers []io.Closer

func (c closers) Close() (err error) {
	for _, each := range c {
		err = errors.Join(err, each.Close())
	}
	return err
}

// unpack unpacks an image to dir: rootfs/ and env.json.
func unpack(ctx context.Context, image v1.Image, dir string, b *budget) error {
	if err := errors.Join(checkManifest(image), b.room()); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if size := len(strings.Join(config.Config.Env, " ")); size > maxImageEnv {
		return fault.Newf(fault.Exhausted, "use another image", "the image's environment has %d bytes, but %d is the maximum", size, maxImageEnv)
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
	// Resolve every path of an archive below this root. Otherwise links that earlier entries created could lead out of
	// it.
	root, err := os.OpenRoot(filepath.Join(dir, "rootfs"))
	if err != nil {
		return err
	}
	defer root.Close()
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		archive, err := content(layer)
		if err != nil {
			return err
		}
		err = errors.Join(applyLayer(ctx, root, archive, b), archive.Close())
		if err != nil {
			return err
		}
	}
	return completeRoot(root)
}

// applyLayer applies one layer's archive to a root file system.
func applyLayer(ctx context.Context, root *os.Root, content io.Reader, b *budget) error {
	// Limit the archive too, in case it is larger than its entries declare.
	archive := tar.NewReader(io.LimitReader(content, 2*maxImageBytes))
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
		if err := b.spend(header.Size); err != nil {
			return err
		}
		if len(header.Name) > maxPathLength || len(header.Linkname) > maxPathLength || strings.Count(header.Name, "/") > maxPathDepth {
			return fault.New(fault.Invalid, "the image has a path that is too long", "use another image")
		}
		if err := applyEntry(root, header, archive); err != nil {
			return fmt.Errorf("unpack %s: %w", header.Name, err)
		}
	}
}

// The marks for deleted files in a layer; see the OCI image specification.
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
		// Otherwise this would delete the directory itself or its parent.
		if hidden == "" || hidden == "." || hidden == ".." {
			return fault.New(fault.Invalid, "the image deletes a file without a name", "use another image")
		}
		return removeIn(root, dir+hidden)
	}
	if dir != "" {
		if err := root.MkdirAll(path.Clean(dir), 0o755); err != nil {
			return err
		}
	}
	// Omit setuid and similar bits, because they have no effect in a box. The server must be able to enter and delete a
	// directory.
	mode := header.FileInfo().Mode().Perm()
	if header.Typeflag == tar.TypeDir {
		if info, err := root.Lstat(file); err == nil && !info.IsDir() {
			if err := root.Remove(file); err != nil {
				return err
			}
		}
		return errors.Join(root.MkdirAll(file, 0o755), root.Chmod(file, mode|0o700))
	}
	// Remove the entry of a lower layer, because a file replaces a link instead of being written through it.
	if err := removeIn(root, file); err != nil {
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
		return nil // device nodes and pipes are not allowed in a box
	}
}

func removeChildren(root *os.Root, dir string) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		err = errors.Join(err, removeIn(root, path.Join(dir, entry.Name())))
	}
	return err
}

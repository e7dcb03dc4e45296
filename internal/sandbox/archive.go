package sandbox

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/arbe-dev/arbe/internal/fault"
)

// maxSaved limits the saved size of one folder, in bytes.
const maxSaved = 64 << 20

const (
	// maxArchived limits the files of an archive, and maxEntries all its entries, including those left out.
	maxArchived, maxEntries = 50_000, 200_000
	// maxPath is the system's limit on paths and links, in bytes.
	maxPath = 4095
)

// cleanArchive copies a tar archive, compressed, and returns how many files it has and how many were left out. Programs
// of a sandbox wrote it, so it may contain anything. cleanArchive copies only files, links and directories below the
// folder, nothing below a link, and no hooks of repositories, which git would run.
func cleanArchive(to io.Writer, from io.Reader) (files, left int, err error) {
	packed := gzip.NewWriter(to)
	c := &cleaning{in: tar.NewReader(from), out: tar.NewWriter(packed), links: map[string]bool{}, regular: map[string]bool{}}
	for err == nil {
		err = c.next()
	}
	if !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return c.files, c.left, errors.Join(c.out.Close(), packed.Close())
}

// cleaning is the state of copying one archive.
type cleaning struct {
	in             *tar.Reader
	out            *tar.Writer
	links, regular map[string]bool // by their clean names
	// seen is the number of entries so far.
	seen, files, left int
	// size is the size of files and their names.
	size int64
}

// next copies the next entry. After the last one, the error is [io.EOF].
func (c *cleaning) next() error {
	h, err := c.in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return damaged(err)
	}
	if c.seen++; c.seen > maxEntries {
		return tooMany(maxEntries)
	}
	if len(h.Name) > maxPath+len("./") || len(h.Linkname) > maxPath {
		c.left++
		return nil
	}
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." {
		return nil
	}
	if !c.allows(h, name) {
		if !isHook(name) || h.Typeflag != tar.TypeDir && !strings.HasSuffix(name, ".sample") { // git's examples are no loss
			c.left++
		}
		return nil
	}
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & int64(fs.ModePerm), ModTime: h.ModTime, Format: tar.FormatPAX}
	delete(c.regular, name)
	switch h.Typeflag {
	case tar.TypeReg:
		c.regular[name], clean.Size = true, h.Size
	case tar.TypeLink:
		clean.Linkname = path.Clean(strings.TrimPrefix(h.Linkname, "./"))
	case tar.TypeSymlink:
		c.links[name], clean.Linkname = true, h.Linkname
	case tar.TypeDir:
		clean.Name += "/"
	}
	if c.size += clean.Size + int64(len(clean.Name)+len(clean.Linkname)); c.size > maxSaved {
		return tooMuch()
	}
	return c.copy(clean)
}

// copy copies an entry if it is allowed.
func (c *cleaning) copy(clean *tar.Header) error {
	if clean.Typeflag != tar.TypeDir {
		if c.files++; c.files > maxArchived {
			return tooMany(maxArchived)
		}
	}
	if err := c.out.WriteHeader(clean); err != nil {
		return err
	}
	_, err := io.Copy(c.out, c.in)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return damaged(err)
	}
	return err
}

// damaged is the error for an invalid archive. An error of reading it is returned unchanged.
func damaged(err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return err
	}
	return fault.New(fault.Invalid, "the archive of the files cannot be read", "check the sandbox's tar").Because(err)
}

// allows reports whether an entry is copied.
func (c *cleaning) allows(h *tar.Header, name string) bool {
	if !filepath.IsLocal(name) || isHook(name) {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' && c.links[name[:i]] {
			return false
		}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeSymlink, tar.TypeDir:
		return !c.links[name]
	case tar.TypeLink: // a hard link to a file that was copied
		return c.regular[path.Clean(strings.TrimPrefix(h.Linkname, "./"))] && !c.links[name]
	}
	return false
}

// besides copies an archive without the contents of some folders, and without anything in their way. left is the number
// of files and links left out.
func besides(folders []string, to io.Writer, from io.Reader) (left int, err error) {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return left, out.Close()
		} else if err != nil {
			return left, err
		}
		name, dir := path.Clean(h.Name), h.Typeflag == tar.TypeDir
		if slices.ContainsFunc(folders, func(folder string) bool { return within(name, folder) || !dir && within(folder, name) }) {
			if !dir {
				left++
			}
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return left, err
		}
		if _, err := io.Copy(out, in); err != nil {
			return left, err
		}
	}
}

// isHook reports whether a file is a hook of a repository, or of a submodule.
func isHook(name string) bool {
	in := false // a directory of git
	for dir := range strings.SplitSeq(name, "/") {
		switch {
		case in && dir == "hooks":
			return true
		case strings.HasSuffix(dir, ".git"), dir == "modules" && in:
			in = true
		case dir == "refs" || dir == "logs" || dir == "objects":
			return false // a branch may have this name
		}
	}
	return false
}

func tooMany(most int) error {
	return fault.Newf(fault.Exhausted, "keep them in a repository, or copy what you need with arbe cp", "there are more than %d files", most).WithReason(fault.TooLarge)
}

func tooMuch() error {
	return fault.New(fault.Exhausted, fmt.Sprintf("there is more than %d MB to save", maxSaved>>20), "commit and push, or copy what you need with arbe cp").WithReason(fault.TooLarge)
}

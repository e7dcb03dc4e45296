package sandbox

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// packed writes an archive as a program in a sandbox might.
func packed(t *testing.T, to io.Writer, entries ...tar.Header) {
	t.Helper()
	w := tar.NewWriter(to)
	for _, h := range entries {
		h.Mode, h.Format = 0o644, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Error(err)
			return
		}
		_, _ = io.CopyN(w, zero{}, h.Size)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// cleaned returns the names in an archive after cleaning, and the number of entries left out.
func cleaned(t *testing.T, entries ...tar.Header) (names []string, left int) {
	t.Helper()
	var raw, clean bytes.Buffer
	packed(t, &raw, entries...)
	_, left, err := cleanArchive(&clean, &raw)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(&clean)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, left
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func TestWhatAnArchiveOfASandboxMayHave(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    []string
	}{
		"files, links and directories":       {[]tar.Header{{Typeflag: tar.TypeDir, Name: "./d/"}, file("./d/f"), hard("./h", "./d/f"), link("./l", "d")}, []string{"d/", "d/f", "h", "l"}},
		"nothing outside":                    {[]tar.Header{file("../out"), file("/etc/passwd"), file("a/../../out")}, nil},
		"nothing below a link":               {[]tar.Header{link("l", "/tmp"), file("l/x"), file("l")}, []string{"l"}},
		"no devices":                         {[]tar.Header{{Typeflag: tar.TypeChar, Name: "c"}, {Typeflag: tar.TypeFifo, Name: "p"}}, nil},
		"no hooks":                           {[]tar.Header{file("x/.git/hooks/post-checkout"), file(".git/modules/m/hooks/x")}, nil},
		"no hard link to what is left":       {[]tar.Header{link("l", "/etc"), hard("h", "l"), hard("i", "../../etc/passwd")}, []string{"l"}},
		"no hard link to what became a link": {[]tar.Header{file("a"), link("a", "x/.git"), hard("b", "a"), file("b/hooks/post-checkout")}, []string{"a", "a", "b/hooks/post-checkout"}},
		"no name that no system has":         {[]tar.Header{file(strings.Repeat("n", 5000)), link("l", strings.Repeat("n", 5000)), file("f")}, []string{"f"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if names, left := cleaned(t, c.entries...); !slices.Equal(names, c.want) || left != len(c.entries)-len(c.want) {
				t.Errorf("it has %q, and %d were left out; want %q", names, left, c.want)
			}
		})
	}
}

// A hostile archive costs the server time in proportion to its length, and little memory.
func TestAnArchiveThatIsMadeToCost(t *testing.T) {
	const nothing = 0 // of what is left out, and of directories, nothing is held
	for name, c := range map[string]struct {
		entry         tar.Header
		length, holds int // in bytes
	}{
		"names that are long":               {tar.Header{Typeflag: tar.TypeReg, Name: numbered + strings.Repeat("n", 900_000)}, 40 << 20, nothing},
		"names that are deep":               {tar.Header{Typeflag: tar.TypeReg, Name: numbered + strings.Repeat("/n", 450_000)}, 40 << 20, nothing},
		"long names that a system may have": {tar.Header{Typeflag: tar.TypeReg, Name: numbered + "/" + strings.Repeat("n/", 2000) + "n"}, 96 << 20, maxSaved},
		"directories without end":           {tar.Header{Typeflag: tar.TypeDir, Name: numbered + "é/"}, 64 << 20, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			limited := &until{Reader: endless(t, c.entry), left: c.length} // more than may be held in memory
			began, before := time.Now(), memory()
			_, _, err := cleanArchive(io.Discard, limited)
			took, held := time.Since(began), limited.memory-before
			// A slow machine takes half a minute for each; quadratic time would be hours.
			if took > 4*time.Minute || held > c.holds+16<<20 {
				t.Errorf("%d MiB took %v, and held %d MiB", c.length>>20, took, held>>20)
			}
			if limited.left > 0 && fault.CodeOf(err) != fault.Exhausted {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// numbered begins the name of an entry in an endless archive.
const numbered = "0000000"

// endless is an archive of this entry, again and again, each with another number in its name. To write each entry with
// [tar.Writer] would cost several times what reading it costs. The name must be one that only a PAX record can hold, because
// such a record has no checksum.
func endless(t *testing.T, entry tar.Header) io.Reader {
	var one bytes.Buffer
	entry.Format = tar.FormatPAX
	if err := tar.NewWriter(&one).WriteHeader(&entry); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(one.Bytes(), []byte("path="+numbered))
	if at < 0 {
		t.Fatal("no PAX record has the name")
	}
	e := &repeated{entry: one.Bytes()}
	e.number = e.entry[at+len("path="):][:len(numbered)]
	return e
}

type repeated struct {
	entry, left, number []byte
	count               int
}

func (r *repeated) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		copy(r.number, fmt.Sprintf("%0*d", len(numbered), r.count))
		r.count, r.left = r.count+1, r.entry
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// until ends after this many bytes, and records the memory in use at that point.
type until struct {
	io.Reader
	left, memory int
}

func (u *until) Read(p []byte) (int, error) {
	if u.left <= 0 {
		u.memory = memory()
		return 0, io.EOF
	}
	n, err := u.Reader.Read(p[:min(len(p), u.left)])
	u.left -= n
	return n, err
}

// memory returns the memory in use.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

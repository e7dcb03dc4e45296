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
	for name, entry := range map[string]func(i int) tar.Header{
		"names that are long": func(i int) tar.Header {
			return tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%d%s", i, strings.Repeat("n", 900_000))}
		},
		"names that are deep": func(i int) tar.Header {
			return tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%d%s", i, strings.Repeat("/n", 450_000))}
		},
		"long names that a system may have": func(i int) tar.Header {
			return tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%d/%s", i, strings.Repeat("n/", 2000)+"n")}
		},
		"directories without end": func(i int) tar.Header {
			return tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("%d/", i)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw, printed := io.Pipe()
			go func() {
				w := tar.NewWriter(printed)
				var err error
				for i := 0; err == nil && i < 1_000_000; i++ {
					h := entry(i)
					h.Format = tar.FormatPAX
					err = w.WriteHeader(&h)
				}
				printed.CloseWithError(err)
			}()
			limited := &until{Reader: raw, left: 96 << 20} // more than may be held in memory
			began, before := time.Now(), memory()
			_, _, err := cleanArchive(io.Discard, limited)
			took, held := time.Since(began), limited.memory-before
			raw.CloseWithError(io.ErrClosedPipe)
			// A slow machine takes half a minute for each; quadratic time would be hours.
			if took > 4*time.Minute || held > maxSaved+16<<20 {
				t.Errorf("96 MiB took %v, and held %d MiB", took, held>>20)
			}
			if limited.left > 0 && fault.CodeOf(err) != fault.Exhausted {
				t.Errorf("it says %v", err)
			}
		})
	}
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

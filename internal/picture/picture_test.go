package picture_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/picture"
)

// painted returns an image whose left half is red and whose right half is blue.
func painted(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.RGBA{255, 0, 0, 255}
			if x >= w/2 {
				c = color.RGBA{0, 0, 255, 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

func noise(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = byte(r.Uint32()) | byte(i&3/3*255) // opaque
	}
	return m
}

func asPNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asGIF(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gif.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webpBytes is a WebP of one pixel.
func webpBytes(t testing.TB) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA=")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// claiming returns a PNG of one pixel whose header claims another size.
func claiming(t testing.TB, w, h uint32) []byte {
	t.Helper()
	b := asPNG(t, painted(1, 1))
	binary.BigEndian.PutUint32(b[16:], w)
	binary.BigEndian.PutUint32(b[20:], h)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

// turned returns a JPEG with Exif's orientation.
func turned(t testing.TB, m image.Image, orientation byte) []byte {
	t.Helper()
	b := asJPEG(t, m)
	tiff := append([]byte("Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00"), orientation, 0, 0, 0, 0, 0, 0)
	segment := binary.BigEndian.AppendUint16([]byte{0xff, 0xe1}, uint16(len(tiff)+2))
	return append(append(append([]byte{0xff, 0xd8}, segment...), tiff...), b[2:]...)
}

func fit(t testing.TB, data []byte) picture.Image {
	t.Helper()
	got, err := picture.Fit(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnImageIsWhatItsBytesSay(t *testing.T) {
	t.Parallel()
	for kind, data := range map[string][]byte{
		picture.PNG: asPNG(t, painted(30, 20)), picture.JPEG: asJPEG(t, painted(30, 20)), picture.GIF: asGIF(t, painted(30, 20)),
	} {
		if got, err := picture.Look(bytes.NewReader(data)); err != nil || got != (picture.Info{Type: kind, Width: 30, Height: 20}) {
			t.Errorf("%s: %v %v", kind, got, err)
		}
	}
	if got, err := picture.Look(bytes.NewReader(webpBytes(t))); err != nil || got != (picture.Info{Type: picture.WebP, Width: 1, Height: 1}) {
		t.Errorf("WebP: %v %v", got, err)
	}
	for name, data := range map[string]string{
		"SVG":   `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`,
		"HTML":  "<!doctype html><img src=x>",
		"PDF":   "%PDF-1.7\n",
		"BMP":   "BM\x46\x00\x00\x00",
		"empty": "",
		"text":  "GIF is pronounced as it is written",
	} {
		if _, err := picture.Look(strings.NewReader(data)); !errors.Is(err, picture.ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatFitsStaysAsItIs(t *testing.T) {
	t.Parallel()
	for kind, data := range map[string][]byte{
		picture.PNG: asPNG(t, painted(30, 20)), picture.JPEG: asJPEG(t, painted(30, 20)), picture.WebP: webpBytes(t),
	} {
		if got := fit(t, data); got.Type != kind || !bytes.Equal(got.Data, data) {
			t.Errorf("a small %s becomes %v with %d bytes, of %d", kind, got.Info, len(got.Data), len(data))
		}
	}
}

func TestAnImageIsMadeToFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data []byte
		want picture.Info
	}{
		"a wide one":                 {asPNG(t, painted(3136, 100)), picture.Info{Type: picture.PNG, Width: 1568, Height: 50}},
		"one of many pixels":         {asPNG(t, painted(2000, 2000)), picture.Info{Type: picture.PNG, Width: 1072, Height: 1072}},
		"a photo":                    {asJPEG(t, painted(4000, 3000)), picture.Info{Type: picture.JPEG, Width: 1238, Height: 928}},
		"an animation":               {asGIF(t, painted(64, 32)), picture.Info{Type: picture.PNG, Width: 64, Height: 32}},
		"a PNG of many bytes":        {asPNG(t, noise(1000, 1000)), picture.Info{Type: picture.JPEG, Width: 1000, Height: 1000}},
		"one that is a line":         {asPNG(t, painted(20_000, 1)), picture.Info{Type: picture.PNG, Width: 1568, Height: 1}},
		"a camera held to one side":  {turned(t, painted(40, 20), 6), picture.Info{Type: picture.JPEG, Width: 20, Height: 40}},
		"a camera held upside down":  {turned(t, painted(40, 20), 3), picture.Info{Type: picture.JPEG, Width: 40, Height: 20}},
		"a camera with a bad header": {turned(t, painted(40, 20), 99), picture.Info{Type: picture.JPEG, Width: 40, Height: 20}},
	} {
		got := fit(t, c.data)
		if got.Info != c.want || len(got.Data) > picture.MaxBytes {
			t.Errorf("%s becomes %v with %d bytes, want %v", name, got.Info, len(got.Data), c.want)
		}
		seen, err := picture.Look(bytes.NewReader(got.Data))
		if err != nil || seen != got.Info {
			t.Errorf("%s: what it becomes is %v, %v", name, seen, err)
		}
		before, err := picture.Look(bytes.NewReader(c.data))
		if err != nil {
			t.Fatal(err)
		}
		if w, h := picture.Fits(before.Width, before.Height); w != got.Width || h != got.Height {
			t.Errorf("%s: it was said to become %d × %d, and is %v", name, w, h, got.Info)
		}
		if again := fit(t, c.data); !bytes.Equal(again.Data, got.Data) {
			t.Errorf("%s becomes something else each time", name)
		}
	}
}

func TestAnAnimationWhoseFirstPictureIsSmallKeepsItsPlace(t *testing.T) {
	t.Parallel()
	frame := image.NewPaletted(image.Rect(30, 10, 40, 20), color.Palette{color.Black, color.White})
	for i := range frame.Pix {
		frame.Pix[i] = 1
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{0}, Config: image.Config{Width: 40, Height: 20}}); err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(fit(t, b.Bytes()).Data))
	if err != nil {
		t.Fatal(err)
	}
	if r, _, _, _ := m.At(35, 15).RGBA(); m.Bounds() != image.Rect(0, 0, 40, 20) || r != 0xffff {
		t.Errorf("it fills %v, and its place is not white", m.Bounds())
	}
}

func TestACameraHeldSidewaysIsTurned(t *testing.T) {
	t.Parallel()
	isRed := func(c color.Color) bool { r, _, b, _ := c.RGBA(); return r > b }
	for orientation, redAt := range map[byte]image.Point{
		2: {35, 10}, 3: {35, 10}, 4: {5, 10}, 5: {10, 5}, 6: {10, 5}, 7: {10, 35}, 8: {10, 35},
	} {
		m, err := jpeg.Decode(bytes.NewReader(fit(t, turned(t, painted(40, 20), orientation)).Data))
		if err != nil {
			t.Fatal(err)
		}
		other := image.Pt(m.Bounds().Dx()-1-redAt.X, m.Bounds().Dy()-1-redAt.Y)
		if !isRed(m.At(redAt.X, redAt.Y)) || isRed(m.At(other.X, other.Y)) {
			t.Errorf("orientation %d: red is not at %v", orientation, redAt)
		}
	}
}

func TestHostileImagesAreRefused(t *testing.T) {
	t.Parallel()
	whole := asPNG(t, noise(300, 300))
	progressive := asJPEG(t, painted(8, 8))
	scan := progressive[bytes.Index(progressive, []byte("\xff\xda")):]
	webpLie := webpBytes(t)
	binary.LittleEndian.PutUint32(webpLie[4:], 1<<30)
	binary.LittleEndian.PutUint32(webpLie[16:], 1<<30-12)
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"a PNG that claims 65,000 × 65,000 pixels": {claiming(t, 65_000, 65_000), picture.ErrHuge},
		"a PNG that claims 2^31-1 pixels a side":   {claiming(t, 1<<31-1, 1<<31-1), picture.ErrDamaged},
		"a PNG of one line of 50,000,000 pixels":   {claiming(t, 50_000_000, 1), picture.ErrHuge},
		"a PNG of one column of 50,000,000 pixels": {claiming(t, 1, 50_000_000), picture.ErrHuge},
		"a PNG without pixels":                     {claiming(t, 0, 10), picture.ErrDamaged},
		"a PNG that is cut":                        {whole[:len(whole)/2], picture.ErrDamaged},
		"a PNG that claims more than it has":       {claiming(t, 3000, 3000), picture.ErrDamaged},
		"a GIF that claims 65,535 × 65,535 pixels": {[]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), picture.ErrHuge},
		"a JPEG of thousands of scans":             {append(progressive, bytes.Repeat(scan, 2000)...), picture.ErrHuge},
		"a JPEG of nothing":                        {[]byte("\xff\xd8\xff\xe0\x00\x10JFIF"), picture.ErrDamaged},
		"a WebP that claims a gigabyte":            {webpLie, picture.ErrDamaged},
		"an SVG":                                   {[]byte("<svg/>"), picture.ErrNone},
	} {
		began := time.Now()
		if got, err := picture.Fit(t.Context(), bytes.NewReader(c.data)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v %v, want %v", name, got.Info, err, c.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s takes %v", name, took)
		}
	}
}

// zeros is a PNG's header followed by endless zeros.
type zeros struct{ head []byte }

func (z *zeros) Read(p []byte) (int, error) {
	n := copy(p, z.head)
	z.head = z.head[n:]
	clear(p[n:])
	return len(p), nil
}

func TestAnEndlessFileIsNotRead(t *testing.T) {
	t.Parallel()
	if _, err := picture.Fit(t.Context(), &zeros{asPNG(t, painted(10, 10))}); !errors.Is(err, picture.ErrHuge) {
		t.Errorf("%v", err)
	}
	if _, err := picture.Look(&zeros{[]byte("plain")}); !errors.Is(err, picture.ErrNone) {
		t.Errorf("%v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWhatCannotBeReadIsNoVerdict(t *testing.T) {
	t.Parallel()
	if _, err := picture.Look(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if _, err := picture.Fit(t.Context(), broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // either a slot was free, or it waited
		if _, err := picture.Fit(over, broken{}); !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	}
}

func FuzzFit(f *testing.F) {
	f.Add(asPNG(f, painted(3, 3)))
	f.Add(asGIF(f, painted(3, 3)))
	f.Add(webpBytes(f))
	f.Add(turned(f, painted(9, 9), 6))
	f.Fuzz(func(t *testing.T, data []byte) {
		said, err := picture.Look(bytes.NewReader(data))
		if err != nil {
			return
		}
		got, err := picture.Fit(context.Background(), bytes.NewReader(data))
		if err != nil {
			return
		}
		if w, h := picture.Fits(said.Width, said.Height); got.Width != w || got.Height != h || len(got.Data) > picture.MaxBytes {
			t.Fatalf("%v becomes %v with %d bytes", said, got.Info, len(got.Data))
		}
	})
}
